"""A process that has a session for a moment."""

import sys
import time

from tableau_pipeline.publishing.session import PersonalAccessToken, signed_in


def main(url: str, name: str, secret: str) -> None:
    # All begin at once, however long it takes them to start.
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    with signed_in(url, credentials=PersonalAccessToken(name, secret)) as site:
        for _ in range(3):
            assert site.find_project("Default")
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])

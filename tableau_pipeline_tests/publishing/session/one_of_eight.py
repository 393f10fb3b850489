"""A process that has a session for a moment: with our `signed_in`, or with TSC alone."""

import sys
import time

import tableauserverclient as TSC

from tableau_pipeline.publishing.session.credentials import PersonalAccessToken
from tableau_pipeline.publishing.session.sign_in import signed_in


def main(way: str, url: str, name: str, secret: str) -> None:
    # All begin at once, however long it takes them to start.
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    token = PersonalAccessToken(name, secret)
    if way == "ours":
        with signed_in(url, credentials=token) as site:
            for _ in range(3):
                assert site.find_project("Default")
                time.sleep(0.05)
    else:
        server = TSC.Server(url, use_server_version=True)
        with server.auth.sign_in(token.for_site("")):
            for _ in range(3):
                server.projects.get()
                time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])

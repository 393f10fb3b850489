"""Take the screenshots of the documentation, by headless Chromium, from a running `make dev`.

    make demo && make dev          # in one terminal
    .venv/bin/python scripts/screenshots.py

Before, follow the tutorial to the end of "Break it": one picture shows the check that failed.

Look at the pictures before you commit them. CI does not take them.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urljoin
from urllib.request import urlopen

_IMAGES = Path(__file__).parents[1] / "docs" / "images"
_MOST_BYTES = 200_000
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_LINEAGE = "assets/nyc_flights?view=lineage&lineageScope=upstream&lineageDepth=3"


def main() -> int:
    """Take all of them; 1 if one is too large for a page."""
    parser = argparse.ArgumentParser(description="Screenshots of a running `make dev`.")
    parser.add_argument("--dagster", default="http://127.0.0.1:3000", metavar="URL")
    parser.add_argument("--sandbox", default="http://127.0.0.1:8765", metavar="URL")
    chosen = parser.parse_args()
    pictures = {
        "lineage.png": f"{chosen.dagster}/{_LINEAGE}",
        "refresh.png": f"{chosen.dagster}/assets/nyc_flights?view=events",
        "checks.png": f"{chosen.dagster}/assets/nyc_flights?view=checks",
        "guard.png": f"{chosen.dagster}/assets/my_sales?view=checks",
        "sandbox.png": chosen.sandbox,
        "datasource.png": _page_of("NYC Flights", chosen.sandbox),
    }
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.stderr.write(f"None of {', '.join(_BROWSERS)} is installed\n")
        return 1
    sizes = {name: _take(browser, url, _IMAGES / name) for name, url in pictures.items()}
    for name, size in sizes.items():
        sys.stdout.write(f"{name}: {size / 1000:.0f} kB\n")
    return int(max(sizes.values()) > _MOST_BYTES)


def _page_of(name: str, sandbox: str) -> str:
    """The address of a data source's page, which the sandbox's page links to."""
    with urlopen(sandbox, timeout=10) as page:  # noqa: S310 - an address of this machine
        link = re.search(rf'href="([^"]+)">{name}<', page.read().decode())
    if link is None:
        raise SystemExit(f'{sandbox} has no data source "{name}": run `make demo` first')
    return urljoin(sandbox, link[1])


def _take(browser: str, url: str, file: Path) -> int:
    """One picture: how many bytes it has."""
    # Not the user's own profile: what they have open there is none of ours.
    with TemporaryDirectory() as profile:
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu"]
        subprocess.run(
            [
                *command,
                "--hide-scrollbars",
                "--window-size=1400,900",
                # Milliseconds that a page may take to load what it shows.
                "--virtual-time-budget=15000",
                f"--user-data-dir={profile}",
                f"--screenshot={file}",
                url,
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
    return file.stat().st_size


if __name__ == "__main__":
    sys.exit(main())

"""Take the screenshots of the documentation, by headless Chromium, from a running `make dev`.

    make demo && make dev          # in one terminal
    .venv/bin/python scripts/screenshots.py refreshed

`refreshed`, `refused` and `held` are states of the demo. The commands that lead to a state need the
variables that "Your first data source" in the README sets.

* refreshed: follow the tutorial to the end of "Break it"; one picture shows the check that failed.
* refused: declare `quality_warning: true` for NYC Flights, reload the definitions, then run

      tableau-pipeline plan --base HEAD --out approval.json --max-change 5
      dg launch --assets raw_flights,flights \
        --config-json '{"ops": {"raw_flights": {"config": {"as_of": "2013-11-30"}}}}'
      tableau-pipeline refresh --approval approval.json

* held: declare `quality_warning: true` for NYC Flights too, run the commands below, and wait a
  minute for the sensor `quality_warnings`:

      tableau-pipeline rollback nyc_flights --why "wrong time zone"
      tableau-pipeline refresh nyc_flights

  `tableau-pipeline release nyc_flights` ends the hold.

Look at the pictures before you commit them. CI does not take them.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urljoin
from urllib.request import Request, urlopen

_IMAGES = Path(__file__).parents[1] / "docs" / "images"
_MOST_BYTES = 200_000
_TRIES, _SECONDS = 4, 60
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_LINEAGE = "assets/nyc_flights?view=lineage&lineageScope=upstream&lineageDepth=3"
_EVENTS = "assets/nyc_flights?view=events"
_REFUSED_RUNS = (
    '{runsOrError(limit: 1, filter: {statuses: [FAILURE], tags: [{key: "tableau/nyc_flights", '
    'value: "refused"}]}) {...on Runs {results {runId}}}}'
)


def main() -> int:
    """Take the pictures of one state.

    Returns:
        1 if a picture is too large for a page, or if no browser is installed; else 0.
    """
    parser = argparse.ArgumentParser(description="Screenshots of a running `make dev`.")
    parser.add_argument("state", choices=_PICTURES)
    parser.add_argument("--dagster", default="http://127.0.0.1:3000", metavar="URL")
    parser.add_argument("--sandbox", default="http://127.0.0.1:8765", metavar="URL")
    chosen = parser.parse_args()
    pictures = _PICTURES[chosen.state](chosen.dagster, chosen.sandbox)
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.stderr.write(f"None of {', '.join(_BROWSERS)} is installed\n")
        return 1
    sizes = {name: _take(browser, url, _IMAGES / name) for name, url in pictures.items()}
    for name, size in sizes.items():
        sys.stdout.write(f"{name}: {size / 1000:.0f} kB\n")
    return int(max(sizes.values()) > _MOST_BYTES)


def _refreshed(dagster: str, sandbox: str) -> dict[str, str]:
    return {
        "lineage.png": f"{dagster}/{_LINEAGE}",
        "refresh.png": f"{dagster}/{_EVENTS}",
        "checks.png": f"{dagster}/assets/nyc_flights?view=checks",
        "guard.png": f"{dagster}/assets/my_sales?view=checks",
        "sandbox.png": sandbox,
        "datasource.png": _page_of("NYC Flights", sandbox),
    }


def _refused(dagster: str, _: str) -> dict[str, str]:
    body = json.dumps({"query": _REFUSED_RUNS}).encode()
    request = Request(f"{dagster}/graphql", body, {"Content-Type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - an address of this machine
        runs = json.load(answer)["data"]["runsOrError"]["results"]
    if not runs:
        raise SystemExit(f"{dagster} has no refused refresh of nyc_flights: see this file's start")
    return {"refused.png": f"{dagster}/runs/{runs[0]['runId']}?logs=type:STEP_FAILURE"}


def _held(dagster: str, sandbox: str) -> dict[str, str]:
    return {
        "held.png": f"{dagster}/{_EVENTS}",
        "warning.png": _page_of("NYC Flights", sandbox),
    }


# For each state: a function from the addresses of Dagster and the sandbox to the pictures'
# addresses.
_PICTURES: dict[str, Callable[[str, str], dict[str, str]]] = {
    "refreshed": _refreshed,
    "refused": _refused,
    "held": _held,
}


def _page_of(name: str, sandbox: str) -> str:
    """Return the address of a data source's page, to which the sandbox's page links."""
    with urlopen(sandbox, timeout=10) as page:  # noqa: S310 - an address of this machine
        link = re.search(rf'href="([^"]+)">{name}<', page.read().decode())
    if link is None:
        raise SystemExit(f'{sandbox} has no data source "{name}": run `make demo` first')
    return urljoin(sandbox, link[1])


def _take(browser: str, url: str, file: Path) -> int:
    """Take one picture, and return its size in bytes."""
    # On a busy machine, a browser may wait forever for a page that keeps its connections open.
    for _ in range(_TRIES):
        try:
            _try_to_take(browser, url, file)
        except subprocess.TimeoutExpired:
            continue
        return file.stat().st_size
    raise SystemExit(f"{browser} took no picture of {url} in {_TRIES} tries of {_SECONDS} s")


def _try_to_take(browser: str, url: str, file: Path) -> None:
    # A fresh profile keeps the user's own tabs and logins out of the pictures.
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu"]
        subprocess.run(
            [
                *command,
                "--hide-scrollbars",
                "--window-size=1400,900",
                # The milliseconds that a page may take to load its content.
                "--virtual-time-budget=15000",
                f"--user-data-dir={profile}",
                f"--screenshot={file}",
                url,
            ],
            check=True,
            capture_output=True,
            timeout=_SECONDS,
        )


if __name__ == "__main__":
    sys.exit(main())

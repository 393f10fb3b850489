"""What the page of the sandbox says of its calls and quirks."""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

from tableau_sandbox.http.app import API_ROUTES
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.vds.api import CALLS

DOCS = Path(__file__).parents[1] / "docs"


def rows(heading: str, *, of: str = "sandbox.md") -> list[list[str]]:
    """The rows of the table below a heading of a page, without the names of its columns."""
    text = (DOCS / of).read_text("utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    _, _, *found = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    return [row.replace("`", "").split(" | ") for row in found]


def test_calls():
    """Prevents: a call that the page promises and the sandbox refuses, or one that it hides."""
    listed = rows("What is faithful")
    documented = [call for _, calls in listed for call in calls.split(", ")]
    known = [f"{route.method} {route.pattern}" for route in API_ROUTES]
    assert sorted(documented) == sorted([*known, *CALLS])


def test_quirks():
    """Prevents: a quirk that the page lacks, or whose values or default it tells wrongly."""
    listed = rows("Quirks for what Tableau leaves open")
    documented = {flag: values.split(", ") for flag, values, _ in listed}
    known = {f"--{each.name.replace('_', '-')}": each for each in fields(Quirks)}
    assert documented.keys() == known.keys()
    hints = get_type_hints(Quirks)
    for flag, quirk in known.items():
        values = {bool: ("no", "yes"), float: (quirk.default,)}.get(hints[quirk.name])
        allowed = values or get_args(hints[quirk.name]) or tuple(hints[quirk.name])
        assert sorted(documented[flag]) == sorted(map(str, allowed))
        default = {True: "yes", False: "no"}.get(quirk.default, str(quirk.default))
        assert documented[flag][0] == default

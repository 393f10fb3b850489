"""The options of the command for the quirks, one for each."""

import argparse
import math
from dataclasses import fields
from enum import StrEnum
from typing import Any

from tableau_sandbox.quirks import Quirks


def add_quirks(parser: argparse.ArgumentParser) -> None:
    """Add the options for all quirks to the parser."""
    group = parser.add_argument_group("what Tableau leaves open")
    add = group.add_argument
    for quirk in fields(Quirks):
        flag = f"--{quirk.name.replace('_', '-')}"
        default, text = quirk.default, quirk.metadata["help"]
        if isinstance(default, bool):
            text = f"{text} (default: {'yes' if default else 'no'})"
            add(flag, action=argparse.BooleanOptionalAction, default=default, help=text)
            continue
        kind = _seconds
        if isinstance(default, StrEnum):
            kind = type(default)
            text = f"{text}: {', '.join(kind)}"
        add(flag, type=kind, default=default, help=f"{text} (default: {default})")


def chosen_quirks(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the chosen values, by their names in `Quirks`."""
    return {quirk.name: getattr(parsed, quirk.name) for quirk in fields(Quirks)}


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise argparse.ArgumentTypeError("expected a number of seconds, not below zero")
    return seconds

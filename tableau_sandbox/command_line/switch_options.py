"""The options of the command for the switches, one for each."""

import argparse
import math
from dataclasses import fields
from enum import StrEnum
from typing import Any

from tableau_sandbox.switches import Switches


def add_switches(parser: argparse.ArgumentParser) -> None:
    """Add the options for all switches to the parser."""
    group = parser.add_argument_group("what Tableau leaves open")
    add = group.add_argument
    for switch in fields(Switches):
        flag = f"--{switch.name.replace('_', '-')}"
        default, text = switch.default, switch.metadata["help"]
        if isinstance(default, bool):
            text = f"{text} (default: {'yes' if default else 'no'})"
            add(flag, action=argparse.BooleanOptionalAction, default=default, help=text)
            continue
        kind = _seconds
        if isinstance(default, StrEnum):
            kind = type(default)
            text = f"{text}: {', '.join(kind)}"
        add(flag, type=kind, default=default, help=f"{text} (default: {default})")


def chosen_switches(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the chosen values, by their names in `Switches`."""
    return {switch.name: getattr(parsed, switch.name) for switch in fields(Switches)}


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise argparse.ArgumentTypeError("expected a number of seconds, not below zero")
    return seconds

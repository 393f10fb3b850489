"""The options of the command for the open questions, one for each."""

import argparse
import math
from dataclasses import fields
from enum import StrEnum
from typing import Any

from tableau_pipeline.sandbox.open_questions import OpenQuestions


def add_switches(parser: argparse.ArgumentParser) -> None:
    """Add the options for all open questions to the parser."""
    group = parser.add_argument_group("what Tableau leaves open")
    add = group.add_argument
    for question in fields(OpenQuestions):
        flag = f"--{question.name.replace('_', '-')}"
        default, text = question.default, question.metadata["help"]
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
    """Return the chosen answers, by their names in `OpenQuestions`."""
    return {question.name: getattr(parsed, question.name) for question in fields(OpenQuestions)}


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise argparse.ArgumentTypeError("expected a number of seconds, not below zero")
    return seconds

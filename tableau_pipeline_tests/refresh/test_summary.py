"""The line that ends a refresh, in logs and metadata alike."""

import logging
import re

import pytest

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

_LINK = "http://127.0.0.1:"


def _matches(pattern: str, line: str) -> bool:
    return re.fullmatch(pattern, line) is not None


def test_line_tells_what_a_refresh_did(star: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: a run that ends without a line on what was published, where, and whether it is
    right."""
    caplog.set_level(logging.INFO)
    star.declare(reconcile=Reconcile())
    name, end = star.declaration.name, rf" in \d+\.\d s, equal by count on the server, {_LINK}\S+"
    first = star.run()
    assert _matches(rf"{name}: publish \(create\), 10 rows, 0\.\d\d MB{end}", first.summary)
    star.model("airlines", airlines("AA", "UA", "B6"))
    second = star.run()
    assert _matches(rf"{name}: update, -2 \+3 rows, 0\.\d\d MB{end}", second.summary)
    third = star.run()
    unchanged = rf"{name}: no change, nothing sent in \d+\.\d s, equal when it was last compared, "
    assert _matches(rf"{unchanged}{_LINK}\S+", third.summary)
    assert [line for line in caplog.messages if line.startswith(f"{name}: ")] == [
        first.summary,
        second.summary,
        third.summary,
    ]


def test_line_of_a_dry_run_and_of_a_refusal(pipeline: Pipeline):
    """Prevents: a dry run that reads as if something had been sent."""
    name = pipeline.declaration.name
    assert pipeline.run(dry_run=True).summary.startswith(
        f"{name}: dry run, nothing sent; a refresh would be: publish (create) in "
    )
    pipeline.run()
    pipeline.model("flights", flights(1))
    refused = f'{name}: the refresh would be refused: Table "flights": model "flights" has 1 rows'
    assert pipeline.run(dry_run=True).summary.startswith(refused)

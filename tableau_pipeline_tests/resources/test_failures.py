"""How a refresh that failed shows in Dagster: the cause and the remedy, and no traceback."""

import logging

import dagster as dg
import pytest

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.resources.services import as_failure

SHRUNK = "1 rows where 8 are published. If that is right, run again with accept: [shrink]"


def failed(error: Exception, *, step: str | None = None) -> dg.Failure:
    """What Dagster gets to see of an error."""
    with pytest.raises(dg.Failure) as raised, as_failure(logging.getLogger(), step=step):
        raise error
    return raised.value


def test_the_message_is_that_of_the_error():
    """Prevents: a cause that stands below a page of our own code."""
    failure = failed(RefusedError("The key must identify every row"), step="shop_orders")
    assert failure.description == "The key must identify every row"
    assert failure.__cause__ is None
    assert failure.__suppress_context__


def test_where_accept_is_written():
    """Prevents: a remedy of which nobody knows where it goes."""
    failure = failed(RefusedError(SHRUNK), step="shop__orders")
    first, second = str(failure.description).splitlines()
    assert first == SHRUNK
    assert second.endswith("as: ops: {shop__orders: {config: {accept: [shrink]}}}")
    assert failed(RefusedError(SHRUNK)).description == SHRUNK


def test_the_traceback_is_for_developers(caplog: pytest.LogCaptureFixture):
    """Prevents: a hundred lines in the log of each refusal."""
    caplog.set_level(logging.DEBUG)
    failed(RefusedError(SHRUNK))
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.getMessage().startswith("Traceback")


def test_only_what_may_pass_is_tried_again():
    """Prevents: a refusal that is repeated until somebody sees it."""
    assert not failed(RefusedError("no")).allow_retries
    assert failed(RefreshError("not now")).allow_retries

"""The errors of a refresh, shown as failures of a Dagster step."""

import logging
import re
import traceback
from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg

from tableau_pipeline.errors import RefreshError, RefusedError


@contextmanager
def as_failure(log: logging.Logger, *, step: str | None = None) -> Generator[None]:
    """Turn an error of a refresh into the step's failure; a refusal is not retried.

    The traceback helps only developers of this package, so it is logged at debug level.

    Args:
        step: the step whose run config takes the `accept` that a refusal asks for; None if no
            step does.
    """
    try:
        yield
    except RefreshError as error:
        log.debug("%s", "".join(traceback.format_exception(error)))
        message = f"{error}{_where(str(error), step)}"
        raise dg.Failure(message, allow_retries=not isinstance(error, RefusedError)) from None


def _where(message: str, step: str | None) -> str:
    """Return where `accept` goes in the run config, if the message asks for it; else ""."""
    found = re.search(r"accept: \[\w+\]", message)
    if found is None or step is None:
        return ""
    config = f"ops: {{{step}: {{config: {{{found[0]}}}}}}}"
    return f"\n{found[0]} goes into the launchpad, or a file for `dg launch --config`, as: {config}"

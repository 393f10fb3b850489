"""Errors of a refresh, as Dagster shows them."""

import logging
import re
import traceback
from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg

from tableau_pipeline.errors import RefreshError, RefusedError


@contextmanager
def as_failure(log: logging.Logger, *, step: str | None = None) -> Generator[None]:
    """Show what is wrong as the step's own message; a refusal is not tried again.

    Where in this package it was found helps its developers alone: that is logged for them.

    Args:
        step: whose run config takes what a refusal asks to accept; None where none does.
    """
    try:
        yield
    except RefreshError as error:
        log.debug("%s", "".join(traceback.format_exception(error)))
        message = f"{error}{_where(str(error), step)}"
        raise dg.Failure(message, allow_retries=not isinstance(error, RefusedError)) from None


def _where(message: str, step: str | None) -> str:
    """Where `accept` goes, as a launchpad takes it, if the message asks for it."""
    found = re.search(r"accept: \[\w+\]", message)
    if found is None or step is None:
        return ""
    config = f"ops: {{{step}: {{config: {{{found[0]}}}}}}}"
    return f"\n{found[0]} goes into the launchpad, or a file for `dg launch --config`, as: {config}"

"""Errors of a refresh, as Dagster shows them."""

import logging
import traceback
from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg

from tableau_pipeline.errors import RefreshError, RefusedError


@contextmanager
def as_failure(log: logging.Logger) -> Generator[None]:
    """Show what is wrong as the step's own message; a refusal is not tried again.

    Where in this package it was found helps its developers alone: that is logged for them.
    """
    try:
        yield
    except RefreshError as error:
        log.debug("%s", "".join(traceback.format_exception(error)))
        raise dg.Failure(str(error), allow_retries=not isinstance(error, RefusedError)) from None

"""Errors of a refresh, as Dagster shows them."""

from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg

from tableau_pipeline.errors import RefreshError, RefusedError


@contextmanager
def as_failure() -> Generator[None]:
    """Show what is wrong as the step's own message; a refusal is not tried again."""
    try:
        yield
    except RefusedError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    except RefreshError as error:
        raise dg.Failure(str(error)) from error

"""Refuse values that Hyper cannot hold, by table and column."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from tableauhyperapi import HyperException, HyperProcess

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.desired import Models, source
from tableau_pipeline.hyper.types.unsupported_values import unreadable_columns


@contextmanager
def readable(
    hyper: Callable[[], HyperProcess], declaration: Declaration, models: Models
) -> Generator[None]:
    """Report the columns with values on which hyperd fails.

    Raises:
        RefusedError: names the tables and columns.
    """
    try:
        yield
    except HyperException as error:
        # Only after a failure, because this search reads each column of each table once more.
        problems = [
            problem
            for table in declaration.tables
            for problem in unreadable_columns(hyper(), source(table.name, models[table.model]))
        ]
        if not problems:
            raise
        raise RefusedError(
            f"Hyper cannot hold some values. In {'; in '.join(problems)}. Fix them in the model."
        ) from error

"""Say why hyperd could not read models: little memory, damaged files, values it cannot hold."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from tableauhyperapi import HyperException

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.core.units import megabytes
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.desired import Models, table_source
from tableau_pipeline.extracts.validate.damage import damage
from tableau_pipeline.hyper.memory import is_out_of_memory
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types.unsupported_values import unreadable_columns

# What hyperd says of files, and not of their values.
_DAMAGED = ("not a Parquet file", "probably corrupt")


@contextmanager
def readable(
    hyper: Callable[[], Hyperd], declaration: Declaration, models: Models
) -> Generator[None]:
    """Report too little memory, a damaged file, or columns with values on which hyperd fails.

    Raises:
        RefreshError: hyperd may use too little memory.
        RefusedError: names the file, or the tables and columns.
    """
    try:
        yield
    except HyperException as error:
        if is_out_of_memory(error):
            raise RefreshError(
                f"The rows need more than hyperd's memory of {megabytes(hyper().memory)}; raise "
                "HYPER_MEMORY_LIMIT"
            ) from error
        for model, snapshot in models.items():
            if problem := _damage(hyper, snapshot, error):
                raise RefusedError(
                    f'The model "{model}" cannot be read: {problem}. Materialize it again, or '
                    "restore the file."
                ) from error
        # Only after a failure, because this search reads each column of each table once more.
        problems = [
            problem
            for table in declaration.tables
            for problem in unreadable_columns(
                hyper(), table_source(table.name, models[table.model])
            )
        ]
        if not problems:
            raise
        raise RefusedError(
            f"Hyper cannot hold some values. In {'; in '.join(problems)}. Fix them in the model."
        ) from error


def _damage(hyper: Callable[[], Hyperd], snapshot: Snapshot, error: HyperException) -> str | None:
    if missing := snapshot.missing():
        return f"{missing[0]}: the file is gone"
    # To find damage, each file is read; values that hyperd cannot hold look like it there.
    return damage(hyper, snapshot) if any(words in str(error) for words in _DAMAGED) else None

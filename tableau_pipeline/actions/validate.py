"""Check a batch before it is sent: would the server accept all its actions?"""

from collections.abc import Callable, Iterator, Mapping

from tableau_pipeline.actions.batch import Action, Batch
from tableau_pipeline.actions.column_types import (
    deleting_problems,
    inserting_problems,
    updating_problems,
    upserting_problems,
)
from tableau_pipeline.actions.condition_types import comparison_problems
from tableau_pipeline.actions.conditions import Condition, Side
from tableau_pipeline.actions.table_names import KnownTable, Tables, check_types, find_table
from tableau_pipeline.errors import BatchError

_COLUMN_PROBLEMS: Mapping[
    str, Callable[[KnownTable, KnownTable, Condition | None], Iterator[str]]
] = {
    "insert": inserting_problems,
    "replace": inserting_problems,
    "upsert": upserting_problems,
    "update": updating_problems,
    "delete": deleting_problems,
}


def batch_problems(batch: Batch, *, target: Tables, source: Tables) -> list[str]:
    """Return a sentence for each problem that the server would refuse, except those of rows.

    `tableau_pipeline.hyper.open_file.table_columns` reads the tables of a file.

    Args:
        batch: the actions.
        target: the tables of the published file, with the SQL types of their columns.
        source: the tables of the payload; empty without one.

    Raises:
        ValueError: a type is not spelled as `table_columns` spells it.
    """
    check_types(target)
    check_types(source)
    return [
        f"Action {number} ({action.verb}): {problem}"
        for number, action in enumerate(batch.actions, start=1)
        for problem in _problems(action, target, source)
    ]


def _problems(action: Action, target: Tables, source: Tables) -> list[str]:
    try:
        into = find_table(target, Side.TARGET, action.target)
        rows = None if action.source is None else find_table(source, Side.SOURCE, action.source)
    except BatchError as error:
        return [f"{error}."]
    tables = {table.side: table for table in (into, rows) if table is not None}
    problems = list(comparison_problems(action.where, tables))
    if rows is not None:
        problems += _COLUMN_PROBLEMS[action.verb](into, rows, action.where)
    # A long condition may report the same problem of a column many times.
    return [f"{problem}." for problem in dict.fromkeys(problems)]

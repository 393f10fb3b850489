"""Check the columns that a table's policy names: their existence and their types."""

import re
from collections.abc import Iterator, Sequence

from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.policies import Append, Diff, Feed, Partitions, Replace, is_span
from tableau_pipeline.extracts.desired import Models
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types.spark_types import is_moment

_NUMBERS = re.compile(r"(tiny|small|big)?int|float( as real)?|double|decimal\(\d+,\d+\)")


def policy_problems(table: Table, models: Models) -> list[str]:
    """Return a sentence for each part of a table's declaration that does not fit its model."""
    snapshot = models[table.model]
    types = _types(snapshot.columns)
    problems = [*_of_retain(table, types)]
    match table.policy:
        case Diff(key, feed):
            problems += _missing("refresh: diff: key", key, types)
            problems += _of_feed(feed, key, models) if feed else []
        case Append(cursor, lookback):
            problems += _missing("refresh: append: cursor", [cursor], types)
            problems += _of_lookback(cursor, lookback, types)
        case Partitions(column):
            problems += _missing("refresh: partitions: column", [column], types)
            if not snapshot.is_partitioned:
                problems.append(
                    f'refresh: partitions: the model "{table.model}" is not partitioned: give its '
                    "asset a partitions_def, or choose another refresh policy"
                )
        case Replace():
            pass
    return [f'Table "{table.name}": {problem}' for problem in problems]


def _missing(what: str, wanted: Sequence[str], types: dict[str, str]) -> Iterator[str]:
    for name in wanted:
        if name not in types:
            yield f'{what} names "{name}", but the model has the columns {", ".join(types)}'


def _of_retain(table: Table, types: dict[str, str]) -> Iterator[str]:
    if table.retain is None:
        return
    column = table.retain.column
    yield from _missing("retain: column", [column], types)
    if column in types and not is_moment(Column(column, types[column])):
        yield (
            f'retain: column "{column}" is {types[column]}; a rolling window needs a date or a '
            "timestamp"
        )


def _of_lookback(cursor: str, lookback: int | str | None, types: dict[str, str]) -> Iterator[str]:
    type_ = types.get(cursor)
    if type_ == "binary":
        yield (
            f'refresh: append: the cursor "{cursor}" is binary, which has no order: '
            "choose another cursor"
        )
    if lookback is None or type_ is None:
        return
    text, moment = str(lookback), is_moment(Column(cursor, type_))
    if moment and not is_span(text):
        yield f'refresh: append: lookback "{text}" is not a span such as "3 days" or "12 hours"'
    elif not moment and not (_NUMBERS.fullmatch(type_) and text.isdecimal()):
        yield (
            f'refresh: append: lookback "{text}" does not go with the cursor "{cursor}" of type '
            f"{type_}: write a number for a numeric cursor, a span for a date or a timestamp"
        )


def _of_feed(feed: Feed, key: Sequence[str], models: Models) -> Iterator[str]:
    types = _types(models[feed.model].columns)
    yield from _missing(
        f'refresh: diff: changes: columns (feed "{feed.model}")',
        [of_feed for _, of_feed in feed.columns],
        types,
    )
    if unnamed := set(key) - {of_table for of_table, _ in feed.columns}:
        yield (
            f'refresh: diff: changes: the feed "{feed.model}" has no column for the key '
            f"{', '.join(sorted(unnamed))}"
        )


def _types(columns: Sequence[Column]) -> dict[str, str]:
    return {column.name: column.type for column in columns}

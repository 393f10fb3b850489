"""Check which columns an action reads and writes: by exact name and equal type."""

from collections.abc import Iterator

from tableau_pipeline.actions.conditions import Condition, Side, columns_of
from tableau_pipeline.actions.table_names import KnownTable, listed


def inserting_problems(
    target: KnownTable, source: KnownTable, where: Condition | None
) -> Iterator[str]:
    """Yield why rows of the source cannot be inserted into the target."""
    missing = [name for name in target.types if name not in source.types]
    if missing:
        yield (
            f"{source} lacks {_described(target, missing)} of {target}: add it to the payload, "
            "NULL where there is no value"
        )
    yield from _common_problems(target, source, where)


def updating_problems(
    target: KnownTable, source: KnownTable, where: Condition | None
) -> Iterator[str]:
    """Yield why rows of the source cannot update rows of the target."""
    if not set(source.types) & set(target.types):
        yield (
            f"{source} has no column of {target}, so there is nothing to set: use the same "
            "column names"
        )
    yield from _common_problems(target, source, where)


def upserting_problems(
    target: KnownTable, source: KnownTable, where: Condition | None
) -> Iterator[str]:
    """Yield why rows of the source can neither update rows of the target nor be added to them."""
    yield from inserting_problems(target, source, where)
    yield from updating_problems(target, source, where)


def deleting_problems(
    target: KnownTable, source: KnownTable, where: Condition | None
) -> Iterator[str]:
    """Yield why the source has more than what identifies the rows to delete."""
    used = columns_of(where, Side.SOURCE)
    unused = [name for name in source.types if name not in used]
    if unused:
        yield (
            f"{source} has {_described(source, unused)}, which the condition does not use: "
            f"remove it from the payload, or compare it with a column of {target}"
        )


def _common_problems(
    target: KnownTable, source: KnownTable, where: Condition | None
) -> Iterator[str]:
    used = columns_of(where, Side.SOURCE)
    # A column that the condition names may be there to find rows only; it is not copied.
    extra = [name for name in source.types if name not in target.types and name not in used]
    if extra:
        yield (
            f"{source} has {_described(source, extra)}, which {target} lacks: remove it from the "
            "payload, or publish a file that has it"
        )
    for name, type_ in target.types.items():
        if name in source.types and source.types[name] != type_:
            yield (
                f'column "{name}" is {type_} in {target} and {source.types[name]} in {source}: '
                f"cast it to {type_} in the payload"
            )


def _described(table: KnownTable, columns: list[str]) -> str:
    return listed(f'"{name}" ({table.types[name]})' for name in columns)

"""The rules for columns that an action reads and writes: exact names, equal types."""

from collections.abc import Iterable

from tableau_sandbox.batch.conditions import Condition, Side, columns_of
from tableau_sandbox.batch.errors import BatchError, Code
from tableau_sandbox.batch.tables import Table


def inserted_columns(
    target: Table, source: Table, *, condition: Condition, lenient: bool, action: int
) -> list[str]:
    """Return the columns whose values a new row gets from the source.

    Args:
        target: the table that gets the row.
        source: the table that the row comes from.
        condition: source columns that occur only here are not inserted.
        lenient: whether target columns that the source lacks become NULL.
        action: the position of the action.

    Raises:
        BatchError: the source has additional columns, or columns of other types.
    """
    missing = [name for name in target.types if name not in source.types]
    if lenient:
        missing = [name for name in missing if name in target.required]
    if missing:
        raise BatchError(Code.COLUMNS, f"The {source.title} lacks {_names(missing)}.", action)
    return _common(target, source, condition=condition, action=action)


def updated_columns(
    target: Table, source: Table, *, condition: Condition, action: int
) -> list[str]:
    """Return the columns whose values an existing row gets from the source; others stay.

    Raises:
        BatchError: the source has additional columns, columns of other types, or none to set.
    """
    common = _common(target, source, condition=condition, action=action)
    if not common:
        raise BatchError(
            Code.COLUMNS, f"The {source.title} has no column of the {target.title}.", action
        )
    return common


def check_deleting_columns(source: Table, *, condition: Condition, action: int) -> None:
    """Refuse a source with columns that the condition does not use.

    Raises:
        BatchError: it has such columns.
    """
    used = columns_of(condition, Side.SOURCE)
    unused = [name for name in source.types if name not in used]
    if unused:
        raise BatchError(
            Code.COLUMNS,
            f"The {source.title} has columns to which the condition does not refer:"
            f" {_names(unused)}.",
            action,
        )


def _common(target: Table, source: Table, *, condition: Condition, action: int) -> list[str]:
    used = columns_of(condition, Side.SOURCE)
    extra = [name for name in source.types if name not in target.types and name not in used]
    if extra:
        raise BatchError(Code.COLUMNS, f"The {target.title} lacks {_names(extra)}.", action)
    common = [name for name in target.types if name in source.types]
    for name in common:
        if target.types[name] != source.types[name]:
            raise BatchError(
                Code.TYPES,
                f'The types of column "{name}" differ: {target.types[name]} in the {target.title},'
                f" {source.types[name]} in the {source.title}.",
                action,
            )
    return common


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)

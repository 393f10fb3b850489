"""Names of tables and columns, as action batches write them."""

from tableauhyperapi import TableName

from tableau_pipeline.errors import BatchError

_LONGEST = 255


def checked_text(text: object, *, what: str) -> str:
    """The same text.

    Raises:
        BatchError: it is no text, or one that the server cannot read.
    """
    if not isinstance(text, str):
        raise BatchError(f"{what} must be a string, not {text!r}")
    if "\0" in text:
        raise BatchError(f"{what} {text!r} contains U+0000, at which the server stops reading")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BatchError(f"{what} {text!a} is not Unicode text: {error.reason}") from error
    return text


def checked_name(name: object, *, what: str) -> str:
    """The same name.

    Raises:
        BatchError: no table, schema or column can have it.
    """
    text = checked_text(name, what=what)
    if not 0 < len(text) <= _LONGEST:
        raise BatchError(f"{what} {text[:20]!r} must have 1 to {_LONGEST} characters")
    return text


def schema_and_table(table: object, *, what: str) -> tuple[str | None, str]:
    """What a table is called by; without a schema, it is in the only one that holds tables.

    Raises:
        BatchError: it is not the name of a table.
    """
    if not isinstance(table, TableName):
        return None, checked_name(table, what=what)
    schema = table.schema_name
    if schema is None:
        return None, checked_name(table.name.unescaped, what=what)
    if schema.database_name is not None:
        raise BatchError(
            f"{what} {table} names a database, and the server knows only the published and the "
            "uploaded file: use TableName(schema, table)"
        )
    return (
        checked_name(schema.name.unescaped, what=f"the schema of {what}"),
        checked_name(table.name.unescaped, what=what),
    )

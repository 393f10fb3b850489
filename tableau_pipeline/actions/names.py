"""Names of tables and columns, as action batches write them."""

from tableauhyperapi import TableName

from tableau_pipeline.errors import BatchError

_LONGEST = 255


def checked_text(text: object, *, what: str) -> str:
    """Return the text if the server can read it.

    Raises:
        BatchError: it is not a text, or one that the server cannot read.
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
    """Return the name if it is valid.

    Raises:
        BatchError: it is not a valid name of a table, schema or column.
    """
    text = checked_text(name, what=what)
    if not 0 < len(text) <= _LONGEST:
        raise BatchError(f"{what} {text[:20]!r} must have 1 to {_LONGEST} characters")
    return text


def schema_and_table(table: object, *, what: str) -> tuple[str | None, str]:
    """Return the schema and name of a table; the schema is None if it is not given.

    Raises:
        BatchError: it is not a valid table name.
    """
    if not isinstance(table, TableName):
        return None, checked_name(table, what=what)
    schema = table.schema_name
    if schema is None:
        return None, checked_name(table.name.unescaped, what=what)
    if schema.database_name is not None:
        raise BatchError(
            f"{what} {table} names a database, but the server supports only the published and the "
            "uploaded file: use TableName(schema, table)"
        )
    return (
        checked_name(schema.name.unescaped, what=f"the schema of {what}"),
        checked_name(table.name.unescaped, what=what),
    )

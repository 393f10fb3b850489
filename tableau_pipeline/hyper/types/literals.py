"""Values as SQL."""


def string_literal(text: str) -> str:
    """Return a text as a string literal of SQL.

    `tableauhyperapi.escape_string_literal` writes a control character as up to three octal digits;
    a digit that follows it becomes a part of it.
    """
    quoted = text.replace("'", "''")
    if "\0" not in text:
        return f"'{quoted}'"
    # hyperd reads U+0000 only as an escape.
    escaped = quoted.replace("\\", "\\\\").replace("\0", "\\000")
    return f"E'{escaped}'"

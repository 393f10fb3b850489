"""What hyperd does with Parquet files on its own: the floor, and an independent look."""

from collections.abc import Sequence

from tableauhyperapi import escape_string_literal


def scan(files: Sequence[str]) -> str:
    """The files as one relation in SQL."""
    paths = ", ".join(escape_string_literal(file) for file in files)
    return f"external(ARRAY[{paths}], FORMAT => 'parquet')"

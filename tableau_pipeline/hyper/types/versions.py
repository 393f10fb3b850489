"""Versions of the `.hyper` format: which one a type needs, and which products open it."""

import re
from pathlib import Path

# hyperd's default version, which every supported product can open.
LOWEST = 2
NEWEST = 4

# The first products that can open files of a version.
# https://tableau.github.io/hyper-db/docs/hyper-api/hyper_process#default_database_version
PRODUCTS = {
    LOWEST: "Tableau 2020.4.15, 2021.1.12, 2021.2.9, 2021.3.8, 2021.4.4, 2022.1.2 and later",
    3: "Tableau 2022.4.1, Server 2023.1 and later",
    NEWEST: "Tableau 2024.3 and later",
}

_NUMERIC = re.compile(r"NUMERIC\((\d+),\d+\)")
_MAGIC = b"Hyper"
# Two bytes after another version number, found by comparing files of all versions.
_VERSION = slice(10, 12)


def needed_version(sql_type: str) -> int:
    """Return the lowest version that can hold columns of a type."""
    # Decimals of up to 18 digits are stored in 64 bits, the only ones that version 2 knows.
    numeric = _NUMERIC.fullmatch(sql_type)
    if numeric and int(numeric[1]) > 18:
        return 3
    return 4 if sql_type == "REAL" else LOWEST


def version_of(path: Path) -> int:
    """Return the format version of a file.

    Raises:
        ValueError: it is not a `.hyper` file.
    """
    with path.open("rb") as file:
        head = file.read(_VERSION.stop)
    if not head.startswith(_MAGIC) or len(head) < _VERSION.stop:
        raise ValueError(f"{path} is not a .hyper file")
    return int.from_bytes(head[_VERSION], "little")

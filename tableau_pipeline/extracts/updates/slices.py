"""Compare many rows in little memory: by slices of their hashes."""

import math
from collections.abc import Callable
from typing import TypeVar

from tableauhyperapi import HyperException

from tableau_pipeline.core.units import megabytes
from tableau_pipeline.extracts.updates.change import NotProvedError
from tableau_pipeline.hyper.memory import is_out_of_memory

# What hyperd needs to join two relations, for each row of the larger one (measured): on a hash, and
# more for each column that is compared.
_BYTES_OF_A_ROW, _BYTES_OF_A_COLUMN = 70, 14
# The share of hyperd's memory that a comparison may take.
_SHARE = 0.6
_MOST = 256

_T = TypeVar("_T")


def can_compare_columns(*, rows: int, columns: int, memory: int) -> bool:
    """Whether the memory is enough to compare all columns in one piece.

    Args:
        rows: the number of rows of the larger side.
        memory: the bytes that hyperd may use.
    """
    return rows * (_BYTES_OF_A_ROW + columns * _BYTES_OF_A_COLUMN) <= memory * _SHARE


def in_slices(compare: Callable[[int], _T], *, rows: int, memory: int) -> _T:
    """Compare in as many slices as the memory asks for, and in more if it fails nonetheless.

    Args:
        compare: is given the number of slices, a power of two; its result is returned.
        rows: the number of rows of the larger side.
        memory: the bytes that hyperd may use.

    Raises:
        NotProvedError: the memory is not enough for any number of slices.
    """
    needed = max(1.0, rows * _BYTES_OF_A_ROW / (memory * _SHARE))
    number = 2 ** math.ceil(math.log2(needed))
    while number <= _MOST:
        try:
            return compare(number)
        except HyperException as error:
            if not is_out_of_memory(error):
                raise
        number *= 4
    raise NotProvedError(
        f"comparing {rows:,} rows needs more than hyperd's memory of {megabytes(memory)}; raise "
        "HYPER_MEMORY_LIMIT"
    )

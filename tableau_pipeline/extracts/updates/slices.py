"""Compare many rows in little memory: by slices of their hashes."""

import math
from collections.abc import Callable

from tableauhyperapi import HyperException

from tableau_pipeline.core.units import megabytes
from tableau_pipeline.extracts.updates.change import NotProvedError

# What hyperd needs to join two relations on a hash, for each row of the larger one (measured).
_BYTES_OF_A_ROW = 70
# The share of hyperd's memory that a comparison may take.
_SHARE = 0.6
_MOST = 256


def in_slices(compare: Callable[[int], None], *, rows: int, memory: int) -> None:
    """Compare in as many slices as the memory asks for, and in more if it fails nonetheless.

    Args:
        compare: is given the number of slices, a power of two.
        rows: the number of rows of the larger side.
        memory: the bytes that hyperd may use.

    Raises:
        NotProvedError: the memory is not enough for any number of slices.
    """
    needed = max(1.0, rows * _BYTES_OF_A_ROW / (memory * _SHARE))
    number = 2 ** math.ceil(math.log2(needed))
    while number <= _MOST:
        try:
            compare(number)
        except HyperException as error:
            if "memory limit" not in str(error):
                raise
        else:
            return
        number *= 4
    raise NotProvedError(
        f"comparing {rows:,} rows needs more than hyperd's memory of {megabytes(memory)}; raise "
        "HYPER_MEMORY_LIMIT"
    )

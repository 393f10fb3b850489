import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, minimum and maximum in words."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"

"""Sizes in readable form."""


def megabytes(size: int) -> str:
    """Format a number of bytes in megabytes of 10^6 bytes: "0.13 MB", "1,204.5 MB"."""
    return f"{size / 1e6:,.2f} MB" if size < 1e8 else f"{size / 1e6:,.1f} MB"

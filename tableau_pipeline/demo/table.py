"""The table at the end of the demo."""

from collections.abc import Sequence

from tableau_pipeline.demo.story import Line

_WIDTHS = (17, 15, 17, 8, 8, 9, 9, 8, 25, 7)
_HEADINGS = (
    *("data", "data source", "decision", "rows", "deleted", "inserted", "MB sent", "seconds"),
    *("equal, says the refresh", "result"),
)


def table(lines: Sequence[Line]) -> str:
    """Return a line for each chapter and data source, and then what differs."""
    rows = [
        (
            line.chapter.title,
            line.datasource,
            line.decision,
            f"{line.rows:,}",
            f"{line.deleted:,}",
            f"{line.inserted:,}",
            f"{line.bytes_sent / 1e6:.2f}",
            f"{line.seconds:.1f}",
            line.compared.removeprefix("equal "),
            "DIFFERS" if line.differences else "equal",
        )
        for line in lines
    ]
    text = [_row(_HEADINGS), _row(tuple("-" * width for width in _WIDTHS))]
    for row, line in zip(rows, lines, strict=True):
        text += [_row(row), f"    why: {line.reason}"]
    for line in lines:
        text += [
            f"DIFFERS: {line.datasource}, {line.chapter.title}: {difference}"
            for difference in line.differences
        ]
    return "\n".join(["", *text])


def _row(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()

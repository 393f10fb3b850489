"""Pages and tables in HTML. Text is escaped here and nowhere else."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from starlette.responses import HTMLResponse

_STYLE = files("tableau_sandbox.pages").joinpath("style.css").read_text("utf-8")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style></head><body><h1>{title}</h1>{body}</body></html>"""
# Published content may neither run code nor load anything.
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@dataclass(frozen=True)
class Html:
    """A piece of HTML; all other content is shown as text."""

    code: str


Cell = str | int | Html | None


def page(title: str, parts: Iterable[Html], *, status: int = 200) -> HTMLResponse:
    """Return a whole page."""
    body = "\n".join(part.code for part in parts)
    content = _PAGE.format(title=escape(title), style=_STYLE, body=body)
    return HTMLResponse(content, status, headers=_HEADERS)


def element(tag: str, content: Cell, *, kind: str = "") -> Html:
    """Return an element; `kind` is its class in the style sheet."""
    attribute = f' class="{escape(kind)}"' if kind else ""
    return Html(f"<{tag}{attribute}>{_code(content)}</{tag}>")


def link(address: str, text: str) -> Html:
    """Return a link to another page of the sandbox."""
    return Html(f'<a href="{escape(address)}">{escape(text)}</a>')


def table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Html:
    """Return a table; whole numbers are aligned to the right, and None is an empty cell."""
    return rows_table(headings, [row(cells) for cells in rows])


def rows_table(headings: Sequence[str], rows: Iterable[Html]) -> Html:
    """Return a table of finished rows."""
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(made.code for made in rows)
    return Html(f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>')


def row(cells: Sequence[Cell], *, kind: str = "", depth: int = 0) -> Html:
    """Return a row of a table; `depth` indents its first cell, as in a tree."""
    first, *others = cells
    indent = f' style="padding-left: {0.9 + 1.4 * depth:.1f}rem"' if depth else ""
    code = f"<td{indent}>{_code(first)}</td>" + "".join(_cell(cell) for cell in others)
    return element("tr", Html(code), kind=kind)


def _cell(cell: Cell) -> str:
    kind = ' class="number"' if isinstance(cell, int) else ""
    return f"<td{kind}>{_code(cell)}</td>"


def _code(content: Cell) -> str:
    if isinstance(content, Html):
        return content.code
    if isinstance(content, int):
        return f"{content:,}"
    return escape(content or "")

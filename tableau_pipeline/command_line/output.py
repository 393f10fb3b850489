"""Write the output of a command: rich text for users, or a single JSON object for programs."""

import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import IO, Any

import click
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from tableau_pipeline.outcome import Accept
from tableau_pipeline.rendering import markdown_text, message_of

# The width if the output is not a terminal. A CI log, for example, shows long lines.
_WIDE = 200
# The least width of a table, so that names stay complete. A narrower terminal wraps the lines.
_NARROW = 80
# The styles of the signs before a line.
_STYLES = {"ok": "green", "x": "bold red", "!": "yellow", "~": "cyan", "+": "green", "=": "dim"}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Stop writing, but let the command finish: its exit code still reports the result."""
        _end_output(self.file)


def _end_output(stream: IO[str]) -> None:
    """Drop all further output, because the program that reads it has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Output:
    """Writes results to the standard output, and progress and errors to the standard error.

    With `as_json`, the result is one JSON object, and no progress is shown.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        for stream in (sys.stdout, sys.stderr):
            # Replace characters that the terminal cannot show. Otherwise, such a character would
            # end the command with an error.
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")
        # Each stream may be None, because the caller may have closed it.
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        width = max(shutil.get_terminal_size().columns, _NARROW) if is_terminal else _WIDE
        self._console = _Console(width=width, highlight=False, emoji=False, markup=False)
        self._errors = _Console(stderr=True, highlight=False, emoji=False, markup=False)

    def result(self, data: Mapping[str, Any], *shown: RenderableType | None) -> None:
        """Write the result of a command: `data` as JSON, or `shown` as rich text."""
        if self.as_json:
            if sys.stdout is None:
                return
            is_plain = "utf" not in str(getattr(sys.stdout, "encoding", None) or "utf-8").lower()
            text = json.dumps(data, default=_json_value, ensure_ascii=is_plain, indent=2)
            try:
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
            except BrokenPipeError:
                _end_output(sys.stdout)
            return
        for renderable in shown:
            if renderable is not None:
                self._console.print(renderable, soft_wrap=not isinstance(renderable, Table))

    def progress(self, text: str) -> None:
        """Show a user what the command is doing. With `as_json`, show nothing."""
        if not self.as_json:
            self._errors.print(text, style="dim", soft_wrap=True)

    @contextmanager
    def bar(self) -> Generator[Callable[..., None]]:
        """Show a progress bar.

        The body of the `with` statement calls the yielded function with the current step and the
        share that is done, or without a share if the share is unknown.
        """
        hidden = self.as_json or not self._errors.is_terminal
        with Progress(console=self._errors, transient=True, disable=hidden) as progress:
            task = progress.add_task("", total=None)

            def tell(text: str, share: float | None = None) -> None:
                total = None if share is None else 1
                done = share or 0
                # Without `refresh`, the next text may replace this text before a user sees it.
                progress.update(task, description=text, completed=done, total=total, refresh=True)

            yield tell

    def waits(self) -> "LogLines":
        """Return a log that shows only waits, such as the wait for a token that a refresh uses."""
        return LogLines(self, lambda record: hasattr(record, "waits_for"))

    def problem(self, text: str) -> None:
        """Write an error of the command itself to the standard error."""
        self._errors.print(text, style="red", soft_wrap=True)


def reports(command: Callable[..., int]) -> Callable[..., int]:
    """Add the option `--json` to a command; pass the command an `Output` and the module's name."""
    option = click.option(
        "--json",
        "output",
        is_flag=True,
        callback=lambda _context, _option, given: Output(as_json=given),
        help="Write one JSON object.",
    )
    return option(click.pass_obj(command))


def accept_option(help_text: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that adds the option `--accept` to a command."""
    choices = click.Choice([str(accept) for accept in Accept])
    return click.option("--accept", multiple=True, type=choices, help=help_text)


class LogLines(logging.Logger):
    """Shows the log messages that `shows` selects, except messages below the level INFO.

    Of Dagster's events, shows only materializations, with the row count of the asset.

    Args:
        tell: called for a progress bar, with each message and the share that is done; the share is
            None if the record has no share.
    """

    def __init__(
        self,
        output: Output,
        shows: Callable[[logging.LogRecord], bool],
        tell: Callable[[str, float | None], None] = lambda *_: None,
    ) -> None:
        super().__init__("command line")
        self._output, self._shows, self._started = output, shows, time.monotonic()
        self._tell = tell

    def handle(self, record: logging.LogRecord) -> None:
        """Show the elapsed seconds and the message, without the run and the step."""
        event = getattr(record, "dagster_event", None)
        text = message_of(record)
        if event and event.event_type_value == "ASSET_MATERIALIZATION":
            materialization = event.step_materialization_data.materialization
            rows = materialization.metadata.get("dagster/row_count")
            text = f"{materialization.asset_key.to_user_string():22}" + (
                f"{rows.value:>9,} rows" if rows else ""
            )
        elif event or record.levelno < logging.INFO or not self._shows(record):
            return
        self._tell(text, getattr(record, "share", None))
        self._output.progress(f"{time.monotonic() - self._started:6.1f} s  {text}")


def signed(sign: str, text: str) -> Text:
    """Return a line with a coloured sign before the text."""
    return Text.assemble((sign, _STYLES.get(sign, "")), " ", text)


def columns(heads: Sequence[str], rows: Iterable[Sequence[str | int | None]]) -> Table:
    """Return a table without borders; a heading that starts with ">" aligns its column right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head in heads:
        right = head.startswith(">")
        table.add_column(head.lstrip(">"), justify="right" if right else "left", no_wrap=right)
    for row in rows:
        cells = (
            "-" if value is None else f"{value:,}" if isinstance(value, int) else value
            for value in row
        )
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    return table


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str | int | None]]) -> str:
    """Return a table in Markdown. As in `columns`, ">" before a heading aligns its column right."""
    lines = [[head.lstrip(">") for head in heads]]
    lines.append(["---:" if head.startswith(">") else "---" for head in heads])
    for row in rows:
        cells = (
            "-" if value is None else f"{value:,}" if isinstance(value, int) else value
            for value in row
        )
        lines.append([markdown_text(" ".join(cell.split())) for cell in cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ago(then: datetime, now: datetime) -> str:
    """Return a time in the time zone of this host, with its age: "2025-03-01 06:02 (4 h ago)"."""
    minutes = int((now - then).total_seconds() // 60)
    span = f"{minutes} min" if minutes < 100 else f"{minutes // 60} h"
    span = span if minutes < 48 * 60 else f"{minutes // (24 * 60)} days"
    return f"{then.astimezone():%Y-%m-%d %H:%M} ({span} ago)"


def _json_value(value: Any) -> Any:
    """Convert a value that the JSON encoder does not know."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case BaseModel():
            return value.model_dump(mode="json")
        case _ if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        case _ if isinstance(value, Iterable):
            return list(value)
    return str(value)

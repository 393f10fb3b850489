"""Render refusals for a log, Dagster's launchpad, the command line and Markdown."""

import logging
import re
from collections.abc import Sequence
from enum import StrEnum

from tableau_pipeline.outcome import Refusal, accepts_of, in_words


class Face(StrEnum):
    """The place that shows a refusal."""

    LOG = "log"
    LAUNCHPAD = "launchpad"
    COMMAND_LINE = "command line"
    MARKDOWN = "markdown"


def command(key: str, accepts: Sequence[str] = (), *, models: bool = False) -> str:
    """Return the command that repeats a refresh and accepts these refusals.

    Args:
        models: whether the command first runs the models of the data source.
    """
    options = ["--models"] if models else []
    options += [f"--accept {accept}" for accept in accepts]
    return " ".join(["tableau-pipeline refresh", key, *options])


def markdown_text(text: str) -> str:
    """Escape Markdown. Also escape each @, so that GitHub notifies no user."""
    return re.sub(r"([\\`*_<|~@#\[\]])", r"\\\1", text)


def rendered(
    refusals: Sequence[Refusal], face: Face, *, key: str = "", step: str | None = None
) -> str:
    """Render the refusals of a data source.

    The result depends on the face. LOG: one line for each refusal, with problem and remedy.
    LAUNCHPAD: the run config that accepts the refusals. COMMAND_LINE: the command that accepts the
    refusals. MARKDOWN: a list with codes. For the launchpad and the command line, the result is ""
    if nothing can be accepted.

    Args:
        key: the asset key of the data source.
        step: the step whose run config has the key `accept`; None if no step has this key.
    """
    accepts = accepts_of(refusals)
    match face:
        case Face.LOG:
            return in_words(refusals)
        case Face.LAUNCHPAD if accepts and step:
            return f"ops: {{{step}: {{config: {{accept: [{', '.join(accepts)}]}}}}}}"
        case Face.COMMAND_LINE if accepts:
            return command(key, accepts)
        case Face.MARKDOWN:
            return "\n".join(
                f"- **{refusal.code}**: {markdown_text(refusal.text)}" for refusal in refusals
            )
    return ""


def megabytes(size: int) -> str:
    """Format a number of bytes in megabytes of 10^6 bytes, such as "0.13 MB" or "1,204.5 MB"."""
    return f"{size / 1e6:,.2f} MB" if size < 1e8 else f"{size / 1e6:,.1f} MB"


def message_of(record: logging.LogRecord) -> str:
    """Return the text of a log record, without the run and the step that Dagster adds before it."""
    meta = getattr(record, "dagster_meta", {})
    return str(meta.get("orig_message") or record.getMessage())

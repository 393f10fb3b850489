"""How refusals are shown: in a log, in the launchpad, on a command line, and in Markdown."""

import re
from collections.abc import Sequence
from enum import StrEnum

from tableau_pipeline.outcome import Refusal, accepts_of, in_words


class Face(StrEnum):
    """Where people read of a refusal."""

    LOG = "log"
    LAUNCHPAD = "launchpad"
    COMMAND_LINE = "command line"
    MARKDOWN = "markdown"


def command(key: str, accepts: Sequence[str] = (), *, models: bool = False) -> str:
    """The command that lets a refused or failed refresh through, or tries it again.

    Args:
        models: its models are to run before.
    """
    options = [*["--models"][: int(models)], *(f"--accept {each}" for each in accepts)]
    return " ".join(["tableau-pipeline refresh", key, *options])


def markdown_text(text: str) -> str:
    """Text in which Markdown finds no marks of its own, and GitHub no user to notify."""
    return re.sub(r"([\\`*_<|~@#\[\]])", r"\\\1", text)


def rendered(
    refusals: Sequence[Refusal], face: Face, *, key: str = "", step: str | None = None
) -> str:
    """Show refusals of a data source.

    LOG has what is wrong and what to do, a line for each. LAUNCHPAD has the run config that accepts
    them, and COMMAND_LINE the command that does; "" if there is nothing to accept. MARKDOWN has a
    list, with the code of each.

    Args:
        key: the asset key of the data source.
        step: the step whose run config takes what is accepted; None if no step does.
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
            return "\n".join(f"- **{each.code}**: {markdown_text(each.text)}" for each in refusals)
    return ""


def megabytes(size: int) -> str:
    """Format a number of bytes in megabytes of 10^6 bytes: "0.13 MB", "1,204.5 MB"."""
    return f"{size / 1e6:,.2f} MB" if size < 1e8 else f"{size / 1e6:,.1f} MB"

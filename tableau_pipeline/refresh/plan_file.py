"""The files of approvals and saved plans: JSON, with an entry for each data source."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import ValidationError

from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline.outcome import Code


class PlanEntry(Frozen):
    """What a file says of one data source.

    Attributes:
        listed_as: the key of the entries in a file.
        written_by: the command that writes the file.
        key: the asset key.
        declaration: the digest of everything that is declared.
    """

    listed_as: ClassVar[str]
    written_by: ClassVar[str]
    format: Literal[1] = 1
    key: str
    declaration: str


Entry = TypeVar("Entry", bound=PlanEntry)


def write_plan_file(path: Path, entries: Sequence[Entry], kind: type[Entry]) -> None:
    """Write the entries of a file, whole or not at all."""
    values = {kind.listed_as: [*map(entry_values, entries)]}
    text = json.dumps(values, indent=2) + "\n"
    LocalStorage(path.absolute().parent).replace(path.name, text.encode())


def entry_values(entry: PlanEntry) -> dict[str, Any]:
    """Return an entry as JSON values without null, because a run config of Dagster takes none."""
    return entry.model_dump(mode="json", exclude_none=True)


def read_plan_file(path: Path, kind: type[Entry]) -> Mapping[str, Entry]:
    """Return the entries of a file, by the keys of their data sources.

    Raises:
        RefusedError: it cannot be read, has entries of another kind, or a newer release wrote it.
    """
    try:
        values = json.loads(path.read_text("utf-8"))
        entries = values[kind.listed_as]
        parsed = [read_entry(kind, entry, place=str(path)) for entry in entries]
    except (OSError, UnicodeDecodeError, ValueError, TypeError, KeyError) as error:
        raise RefusedError(
            f"{path} has no {kind.listed_as}: write it by `{kind.written_by}`", code=Code.RECORD
        ) from error
    return {entry.key: entry for entry in parsed}


def read_entry(kind: type[Entry], values: Mapping[str, Any], *, place: str = "config") -> Entry:
    """Return an entry of a file.

    Args:
        place: what the values come from, for the error.

    Raises:
        RefusedError: it is not such an entry, or a newer release wrote it.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        number = values.get("format") if isinstance(values, Mapping) else None
        if isinstance(number, int) and number > 1:
            problem = (
                f"has format {number}, which only a newer release reads: install that release, or "
                "plan with this one"
            )
        else:
            problem = f"is damaged: write it again by `{kind.written_by}`"
        text = f"{place}: one of its {kind.listed_as} {problem}"
        raise RefusedError(text, code=Code.RECORD) from error

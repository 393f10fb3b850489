"""Read and write files of approvals or saved plans: JSON, with one entry for each data source."""

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
    """The entry of one data source in a file.

    Attributes:
        listed_as: the JSON key of the list of entries in a file.
        written_by: the command that writes the file.
        key: the asset key of the data source.
        declaration: the digest of the whole declaration.
    """

    listed_as: ClassVar[str]
    written_by: ClassVar[str]
    format: Literal[1] = 1
    key: str
    declaration: str


Entry = TypeVar("Entry", bound=PlanEntry)


def write_plan_file(path: Path, entries: Sequence[Entry], kind: type[Entry]) -> None:
    """Write a file with these entries; after an interruption, the former file remains complete."""
    values = {kind.listed_as: [*map(entry_values, entries)]}
    text = json.dumps(values, indent=2) + "\n"
    LocalStorage(path.absolute().parent).replace(path.name, text.encode())


def entry_values(entry: PlanEntry) -> dict[str, Any]:
    """Return an entry as JSON values, without nulls, which a run config of Dagster cannot have."""
    return entry.model_dump(mode="json", exclude_none=True)


def read_plan_file(path: Path, kind: type[Entry]) -> Mapping[str, Entry]:
    """Return the entries of a file by asset key.

    Raises:
        RefusedError: the file cannot be read, has entries of another kind, or is from a newer
            release.
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
    """Return an entry, made from its JSON values.

    Args:
        place: where the values come from, for error messages.

    Raises:
        RefusedError: the values are not an entry of this kind, or are from a newer release.
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

"""Holds. Refreshes do not change a held data source until a user releases it."""

from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote, unquote

from pydantic import Field, ValidationError

from tableau_pipeline.core.deployment import JournalPlace
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import HeldError, RefusedError
from tableau_pipeline.outcome import Code

# This name cannot clash with the folder of a project root, because an "@" in a root is quoted.
_FOLDER = "@holds"


class Hold(Frozen):
    """The record that a data source is held: refreshes do not change it until a user releases it.

    Attributes:
        by: the user or the run that holds the data source.
        why: the reason for the hold; "" if no reason was given.
        version: after a rollback, the number of the refresh that first published the rows; None
            without a rollback.
    """

    format: Literal[1] = 1
    since: datetime = Field(default_factory=lambda: datetime.now(UTC))
    by: str
    why: str = ""
    version: int | None = None

    def __str__(self) -> str:
        shows = "" if self.version is None else f", at version {self.version}"
        why = f": {self.why}" if self.why else ""
        return f"held since {self.since:%Y-%m-%d %H:%M} UTC by {self.by}{shows}{why}"


def holds(place: JournalPlace) -> dict[str, Hold | RefusedError]:
    """Map the keys of held data sources to their holds.

    If a hold cannot be read, the key maps to the error of `hold_of`. The function lists the holds
    once, and reads each hold.
    """
    if (folder := _folder(place)) is None:
        return {}
    found: dict[str, Hold | RefusedError] = {}
    for entry in place.storage.list(f"{folder}/"):
        key = unquote(entry.key.rpartition("/")[2].removesuffix(".json"))
        try:
            if entry.key.endswith(".json") and (hold := hold_of(place, key)):
                found[key] = hold
        except RefusedError as error:
            found[key] = error
    return found


def hold_of(place: JournalPlace, key: str) -> Hold | None:
    """Return the hold of a data source; None without a hold.

    Args:
        key: the asset key in its environment, see `core.identity.key_below`.

    Raises:
        RefusedError: the hold cannot be read, so it is unclear whether refreshes may run.
    """
    if (folder := _folder(place)) is None:
        return None
    name = _name(folder, key)
    if (text := place.storage.read(name)) is None:
        return None
    try:
        return Hold.model_validate_json(text)
    except ValidationError as error:
        raise RefusedError(
            f"{place.where}/{name} is damaged, or a newer release wrote it. Install that release; "
            "or remove the file, which releases the data source",
            code=Code.RECORD,
        ) from error


def check_not_held(journal: StoredJournal) -> None:
    """Raise a HeldError if the data source of a journal is held."""
    if hold := hold_of(journal.place, journal.key):
        name = journal.key.partition("@")[0]
        raise HeldError(
            f"{name} is {hold}. Nothing was done; `tableau-pipeline release {name}` lets refreshes "
            "go on",
            reason=str(hold),
        )


def put_hold(place: JournalPlace, key: str, hold: Hold) -> None:
    """Hold a data source, or replace its hold."""
    name = _name(f"{place.established().id}/{_FOLDER}", key)
    place.storage.replace(name, hold.model_dump_json(indent=1).encode())


def end_hold(place: JournalPlace, key: str) -> None:
    """Release a data source. Without a hold, do nothing."""
    if folder := _folder(place):
        place.storage.delete(_name(folder, key))


def _folder(place: JournalPlace) -> str | None:
    deployment = place.deployment()
    return f"{deployment.id}/{_FOLDER}" if deployment else None


def _name(folder: str, key: str) -> str:
    return f"{folder}/{quote(key, safe='')}.json"

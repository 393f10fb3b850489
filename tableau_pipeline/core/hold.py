"""Holds: data sources that stay as they are until somebody releases them."""

from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote, unquote

from pydantic import Field, ValidationError

from tableau_pipeline.core.deployment import JournalPlace
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import HeldError, RefusedError
from tableau_pipeline.outcome import Code

# No project root has this name in a store of journals, where an @ is quoted.
_FOLDER = "@holds"


class Hold(Frozen):
    """A data source that no refresh changes until somebody releases it.

    Attributes:
        by: who holds it: a user, or a run.
        why: the reason, in words; "" if no reason was given.
        version: the refresh whose rows it shows again, after a rollback; None if it shows the rows
            that it had when somebody held it.
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
    """Return the holds of a deployment, by the keys of its journals, with one read for each hold.

    Instead of a hold that cannot be read, the error of `hold_of` is returned.
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
    """Return the hold of a data source; None if it is not held.

    Args:
        key: the asset key in its environment, see `core.identity.key_below`.

    Raises:
        RefusedError: it cannot be read, so it is not known whether a refresh may change anything.
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
    """Raise a HeldError if somebody holds the data source of a journal."""
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
    """Release a data source. If it is not held, nothing happens."""
    if folder := _folder(place):
        place.storage.delete(_name(folder, key))


def _folder(place: JournalPlace) -> str | None:
    deployment = place.deployment()
    return f"{deployment.id}/{_FOLDER}" if deployment else None


def _name(folder: str, key: str) -> str:
    return f"{folder}/{quote(key, safe='')}.json"

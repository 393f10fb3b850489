"""What the last refresh left on the server, and what one was about to send."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal
from uuid import uuid4

from pydantic import Field

from tableau_pipeline.core.snapshot import Fingerprint, Frozen, Snapshot, common_columns
from tableau_pipeline.hyper.tables import Column


class PublishMode(StrEnum):
    """How a whole file replaces what the server holds.

    CREATE fails if the name is taken. REPLACE swaps the data and keeps the calculated fields,
    captions and folders that analysts added. OVERWRITE drops those.
    """

    CREATE = "create"
    REPLACE = "replace"
    OVERWRITE = "overwrite"


# Of a state whose published rows are still to be compared with the models.
UNSEEN = "nobody has looked yet"


class Cutoff(Frozen):
    """Where `retain` cuts: rows with `column` below `value` are not published.

    Attributes:
        days: as declared, and so `as_of`: of equal models, equal rules give equal cutoffs.
        value: a date or timestamp (UTC) as text.
    """

    column: str
    days: int
    as_of: str
    value: str


class TableState(Frozen):
    """One published table.

    Attributes:
        folders: of the model's snapshots, one for each of its partitions.
        model: the fingerprint of all rows of the model.
        content: the fingerprint of the published rows: those that `cutoff` leaves.
        cutoff: None when every row of the model is published.
        key: columns that were found to identify every published row; none if nobody looked.
    """

    columns: tuple[Column, ...]
    folders: tuple[Path, ...]
    model: Fingerprint
    content: Fingerprint
    cutoff: Cutoff | None = None
    key: tuple[str, ...] = ()

    @classmethod
    def of(cls, snapshots: Sequence[Snapshot]) -> "TableState":
        """A table that holds exactly the rows of these snapshots of a model."""
        first, *rest = (snapshot.fingerprint for snapshot in snapshots)
        fingerprint = sum(rest, start=first)
        return cls(
            columns=common_columns(snapshots),
            folders=tuple(snapshot.folder for snapshot in snapshots),
            model=fingerprint,
            content=fingerprint,
        )

    def same_content(self, other: "TableState") -> bool:
        """Whether both hold the same rows in the same columns."""
        return (self.columns, self.content) == (other.columns, other.content)


class State(Frozen):
    """What a refresh left on the server; valid for that server, site and LUID alone.

    Attributes:
        luid: None only in an intent to create a data source.
        updated_at: as the server told it after the refresh.
        declaration: the digest of what the tables and relationships were declared to be.
        metadata: a digest of the `.tds` after our last publish: analysts' edits change it.
        increments: updates since the file was last published whole.
        size: bytes of that file.
        grown: bytes of the payloads since.
        orphans: rows that point at no row of the other table, by relationship; only where any do.
        unreconciled: why the published rows were not compared with those of the models.
    """

    format: Literal[1] = 1
    server: str
    site: str
    project: str
    name: str
    luid: str | None = None
    updated_at: datetime | None = None
    declaration: str
    tables: dict[str, TableState]
    metadata: str | None = None
    increments: int = 0
    size: int | None = None
    grown: int = 0
    orphans: dict[str, int] = Field(default_factory=dict)
    unreconciled: str | None = UNSEEN

    def same_content(self, other: "State") -> bool:
        """Whether both stand for the same published tables."""
        return (
            self.declaration == other.declaration
            and self.tables.keys() == other.tables.keys()
            and all(table.same_content(other.tables[name]) for name, table in self.tables.items())
        )


class Outcome(StrEnum):
    """How a sending ended. Only what is done has any effect."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Intent(Frozen):
    """What a refresh is about to send; recorded before it is sent, and whenever more is known.

    Attributes:
        request_id: names the sending; a later record of the same one replaces the earlier.
        mode: of a whole file; None for an update of the published data.
        target: the state once the sending has taken effect; None when that cannot be told, as of
            an update that somebody wrote by hand.
        luid: of the data source that is updated; None for a whole file.
        connection: of that data source, if it has several.
        batch: the actions of an update, as the JSON text that is sent.
        payload: the file that is sent, kept until the intent is settled.
        final: whether `target` is reached with it; False for all parts of an update but the last.
        resent_at: when a later refresh sent it again, and heard nothing.
        job_id: of the server's job, when there is one and its id is known.
        outcome: None while it is open: the sending may or may not have taken effect.
        unequal: how what was published turned out to differ from `target`.
    """

    request_id: str = Field(default_factory=lambda: str(uuid4()))
    recorded_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    run_id: str
    mode: PublishMode | None
    target: State | None
    luid: str | None = None
    connection: str | None = None
    batch: str | None = None
    payload: Path | None
    final: bool = True
    resent_at: datetime | None = None
    job_id: str | None = None
    outcome: Outcome | None = None
    note: str | None = None
    unequal: str | None = None

    @property
    def action(self) -> str:
        """What is sent, in a word or two."""
        return f"publish ({self.mode})" if self.mode else "update"

"""The checkpoint: what a refresh has recorded of the published data source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tableauhyperapi import TableName

from tableau_pipeline.core.snapshot import Fingerprint, Frozen
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, Column
from tableau_pipeline.outcome import Accept, Distrust


class PublishMode(StrEnum):
    """How a whole file replaces what the server holds.

    CREATE fails if the name is taken. REPLACE swaps the data and keeps the calculated fields,
    captions and folders that analysts added. OVERWRITE drops those, unless the file brings them.
    """

    CREATE = "create"
    REPLACE = "replace"
    OVERWRITE = "overwrite"


# A publish in these modes brings its own metadata along.
NEW_METADATA = (PublishMode.CREATE, PublishMode.OVERWRITE)


class Cutoff(Frozen):
    """The cutoff of `retain`: rows with `column` below `value` are not published.

    Attributes:
        days: as declared. While the models and these stay the same, so does the cutoff.
        value: a date or timestamp (UTC) as text.
    """

    column: str
    days: int
    as_of: str
    value: str


class TableContent(Frozen):
    """The published or desired content of a table: the rows of a version of its model.

    Attributes:
        model: the asset key of the model; `version` is the number of its snapshot.
        all_rows: the fingerprint of all rows of the model.
        content: the fingerprint of the published rows: those that `cutoff` keeps.
        cutoff: None if every row of the model is published.
        key: columns that were found to identify every published row; () if that was not
            checked.
        cursor: the column by which an append finds new rows; it was found to have a value in every
            published row. None if that was not checked.
    """

    model: str
    version: int
    columns: tuple[Column, ...]
    all_rows: Fingerprint
    content: Fingerprint
    cutoff: Cutoff | None = None
    key: tuple[str, ...] = ()
    cursor: str | None = None

    def same_content(self, other: "TableContent") -> bool:
        """Whether both hold the same rows in the same columns."""
        # Ignore version and cutoff: a cutoff that moves without dropping a row changes nothing.
        return (self.columns, self.content) == (other.columns, other.content)


def columns_of(tables: Mapping[str, TableContent]) -> Mapping[str, tuple[Column, ...]]:
    """Return the columns of each table."""
    return {name: table.columns for name, table in tables.items()}


class NoUpdates(Frozen):
    """The server refused or failed the last update, so the data source was published in full.

    Attributes:
        why: the server's refusal, or its notes about the job.
        is_final: another update is pointless until the declaration or the version of the server
            changes.
        since: when the update was attempted.
        declaration: the digest of the declared tables at that time, as in `Checkpoint`.
        version: the version of the server's REST API at that time.
    """

    why: str
    is_final: bool
    since: datetime
    declaration: str
    version: str


class ServerTds(Frozen):
    """The `.tds` that was last read from the server.

    Attributes:
        digest: as in `Metadata`; so is `source`.
    """

    digest: str
    source: str | None = None


class SavedEdits(Frozen):
    """Users' edits of a column or calculation that was removed.

    Attributes:
        path: the start that the paths of all its values share, such as ("field", table, column).
        work: the edits, in words.
        file: where the data source was saved before the removal.
    """

    path: tuple[str, ...]
    work: str
    file: str


class Accepted(Frozen):
    """What users accepted for a refresh that would have been refused otherwise.

    Attributes:
        what: who accepted it, by the name of what was accepted.
        approved_by: who approved its plan; None if it had no approval.
    """

    what: dict[Accept, str]
    approved_by: str | None = None

    def __str__(self) -> str:
        parts = [f"{what} by {who}" for what, who in self.what.items()]
        return "; ".join(
            [*parts, *([f"approved by {self.approved_by}"] if self.approved_by else [])]
        )


@dataclass(frozen=True, slots=True)
class Window:
    """The time window in which a change of ours took effect, by the server's clock."""

    start: datetime
    end: datetime

    def covers(self, stamp: datetime, *, lag: float) -> bool:
        """Whether a time stamp in whole seconds lies in the window, extended by `lag` seconds."""
        start = self.start.replace(microsecond=0)
        return start <= stamp <= self.end + timedelta(seconds=lag)


class Checkpoint(Frozen):
    """What is published, as far as is known; valid only for this server, site and LUID.

    Attributes:
        refresh: the number of the refresh that recorded it; the highest number counts.
        project: as declared, like `name`.
        luid: None only in an intent to create a data source.
        updated_at: as the server reported it after the refresh. So is `revision`, which is None if
            the site keeps no revisions.
        declaration: the digest of the declared tables and relationships.
        metadata: the digest of the `.tds` as our last publish left it. If the server's digest
            differs, users have edited it.
        held: the `.tds` at `updated_at` and `revision`; None if it must be read again.
        adopted: digest of the adopted metadata; cleared once a refresh has confirmed that it
            survived.
        owner: the LUID of the owner before a publish; cleared once that owner is restored.
        written: the names of the files with the metadata values that we wrote. There is more than
            one, the newest first, if it is unknown whether a publish took effect.
        filters: phrases that describe how a user's rows are chosen, as a refresh last read it.
        saved: users' edits of removed columns and calculations, until these return.
        late: the windows of our updates whose change of `updated_at` the refresh did not see; some
            sites change it later.
        updates: the number of updates since the last full publish.
        size: the bytes of the file at the last full publish.
        grown: the bytes of all payloads since then.
        changed_at: when a refresh last changed the published rows.
        taken_at: when a refresh last made the published rows equal to the models, even if nothing
            had changed; a refresh of the metadata alone does not count.
        compared_at: when the published rows were last found equal to those of the models.
        no_updates: why the next change is published in full; None if an update may suffice.
        unreconciled: why the published rows were not compared with those of the models.
        accepted: what was accepted for the refresh that recorded it; None for nothing.
        distrust: why the contents must be compared before an update builds on this; None if an
            update may build on it.
    """

    refresh: int
    server: str
    site: str
    project: str
    name: str
    luid: str | None = None
    updated_at: datetime | None = None
    revision: int | None = None
    declaration: str
    tables: dict[str, TableContent]
    metadata: str | None = None
    held: ServerTds | None = None
    adopted: str | None = None
    owner: str | None = None
    written: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    saved: tuple[SavedEdits, ...] = ()
    late: tuple[Window, ...] = ()
    updates: int = 0
    size: int | None = None
    grown: int = 0
    changed_at: datetime | None = None
    taken_at: datetime | None = None
    compared_at: datetime | None = None
    no_updates: NoUpdates | None = None
    unreconciled: str | None = "the comparison was interrupted"
    accepted: Accepted | None = None
    distrust: Distrust | None = None

    @property
    def is_equal(self) -> bool:
        """Whether the published rows were found to be equal to those of the models."""
        return not (self.unreconciled or self.distrust)

    @property
    def stamp(self) -> tuple[datetime, int | None] | None:
        """The time stamp and newest revision after the refresh; None if they are unknown."""
        return (self.updated_at, self.revision) if self.updated_at else None

    @property
    def reached(self) -> "Checkpoint":
        """This checkpoint, once its request has certainly taken effect."""
        return self.model_copy(update={"written": self.written[:1]})

    @property
    def versions(self) -> Iterator[tuple[str, int]]:
        """The snapshots that it refers to, by model and number."""
        return ((table.model, table.version) for table in self.tables.values())

    def target(self, table: str) -> TableName:
        """Return the table of the published file that holds the rows of a declared table."""
        return TableName(EXTRACT_SCHEMA, EXTRACT_SCHEMA if len(self.tables) == 1 else table)

    @property
    def rows(self) -> Mapping[str, int]:
        """The number of published rows by table."""
        return {name: table.content.rows for name, table in self.tables.items()}


class Outcome(StrEnum):
    """How a request ended. Of the known outcomes, only DONE has changed the server.

    REFUSED: the server refused to start it. LOST: the outcome can no longer be determined.
    """

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    LOST = "lost"

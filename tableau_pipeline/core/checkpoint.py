"""The checkpoint: a refresh's record of the published data source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tableauhyperapi import TableName

from tableau_pipeline.core.snapshot import Fingerprint, Frozen
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, Column
from tableau_pipeline.outcome import Accept, Distrust


class PublishMode(StrEnum):
    """How a published file replaces the data source on the server.

    CREATE fails if the name is taken. REPLACE swaps the data, and keeps the calculated fields,
    captions and folders that analysts added. OVERWRITE keeps only the metadata in the file.
    """

    CREATE = "create"
    REPLACE = "replace"
    OVERWRITE = "overwrite"


# In these modes, the published file brings the metadata.
NEW_METADATA = (PublishMode.CREATE, PublishMode.OVERWRITE)


class Cutoff(Frozen):
    """The cutoff of `retain`: rows with `column` below `value` are not published.

    Attributes:
        days, as_of: as declared in `retain`. If `as_of` is "run", the cutoff changes every day. If
            `as_of` is "max", the cutoff stays until the model or `retain` changes.
        value: the cutoff as text, a date or a timestamp in UTC.
    """

    column: str
    days: int
    as_of: str
    value: str


class TableContent(Frozen):
    """The published or desired content of a table: rows of a version of its model.

    Attributes:
        model: the asset key of the model. `version` is the number of the model's snapshot.
        all_rows: the fingerprint of all rows of the model.
        content: the fingerprint of the rows that `cutoff` keeps. Only these rows are published.
        cutoff: the cutoff of published rows; None if every row of the model is published.
        key: columns that identify every published row, as a check has shown; () without a check.
        cursor: the column by which an append finds new rows. As a check has shown, this column is
            not NULL in any published row. None without a check.
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
        """Whether both contents have the same rows in the same columns."""
        # Ignore version and cutoff, because both may change although the rows stay the same.
        return (self.columns, self.content) == (other.columns, other.content)


def columns_of(tables: Mapping[str, TableContent]) -> Mapping[str, tuple[Column, ...]]:
    """Return the columns of each table."""
    return {name: table.columns for name, table in tables.items()}


class NoUpdates(Frozen):
    """The server refused the last update, or the update failed; a full publish replaced it.

    Attributes:
        why: the server's refusal, or its notes about the job.
        is_final: whether updates will fail until the declaration or the server's version changes.
        since: when the refresh attempted the update.
        declaration: the digest of the declared tables at the attempt, as in `Checkpoint`.
        version: the version of the server's REST API at the attempt.
    """

    why: str
    is_final: bool
    since: datetime
    declaration: str
    version: str


class ServerTds(Frozen):
    """The `.tds` that a refresh last read from the server.

    Attributes:
        digest: a text that changes when a user edits the metadata in the `.tds`.
        source: the class of the connection to another database, such as "postgres"; None if all
            data are in Hyper.
    """

    digest: str
    source: str | None = None


class SavedEdits(Frozen):
    """Users' edits of a removed column or calculation.

    Attributes:
        path: the common start of the paths of all edited values, such as ("field", table, column).
        work: a phrase that describes the edits.
        file: the file with the data source before the removal.
    """

    path: tuple[str, ...]
    work: str
    file: str


class Accepted(Frozen):
    """The values of `accept` that prevented the refusal of a refresh.

    Attributes:
        what: maps each value of `accept` to the user who accepted it.
        approved_by: the user who approved the plan; None without an approval.
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
    """The time window in which our change took effect, by the server's clock."""

    start: datetime
    end: datetime

    def covers(self, stamp: datetime, *, lag: float) -> bool:
        """Whether a time stamp in whole seconds is in the window, extended by `lag` seconds."""
        start = self.start.replace(microsecond=0)
        return start <= stamp <= self.end + timedelta(seconds=lag)


class Checkpoint(Frozen):
    """What is known of the data source with this `luid` on this `server` and `site`.

    Attributes:
        refresh: the number of the refresh that recorded this checkpoint. Of several checkpoints,
            the checkpoint with the highest number counts.
        project: the declared project. `name` is the declared name.
        luid: the LUID of the data source; None only in the record of a request that creates it.
        updated_at: the server's time stamp after the refresh. `revision` is the newest revision at
            this time; None if the site keeps no revisions.
        declaration: the digest of the declared tables and relationships.
        metadata: the digest of the `.tds` as our last publish left it. If the server's `.tds` has
            another digest, users have edited the metadata.
        held: the `.tds` at `updated_at` and `revision`; None if the next refresh must read the
            `.tds`.
        adopted: the digest of the metadata of a data source that we took over, until a refresh has
            confirmed that the data source still has these metadata.
        owner: the LUID of the owner before a publish, until a refresh has restored this owner.
        written: the names of the files with the metadata values that we wrote. If the outcome of a
            publish is unknown, there are several names, the newest first.
        filters: phrases about the filters that decide which rows a user sees, from the last
            refresh that read them.
        saved: users' edits of removed columns and calculations, until the columns return.
        late: the windows of our updates that had not yet changed `updated_at` when the refresh
            ended. Some sites change the time stamp only after the end of the update's job.
        updates: the number of updates since the last full publish.
        size: the bytes of the file at the last full publish.
        grown: the bytes of all payloads since the last full publish.
        changed_at: when a refresh last changed the published rows.
        taken_at: when a refresh last made the published rows equal to the models, even if no row
            had changed. A refresh of the metadata alone does not count.
        compared_at: when a comparison last found the published rows equal to the models' rows.
        no_updates: why the next change needs a full publish; None if an update may suffice.
        unreconciled: why the published rows were not compared with the models' rows; None if a
            comparison found them equal.
        accepted: what users accepted for the refresh; None if nothing was accepted.
        distrust: why no update may build on this checkpoint before a comparison; None if an update
            may.
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
        """Whether a comparison found the published rows equal to the models' rows."""
        return not (self.unreconciled or self.distrust)

    @property
    def stamp(self) -> tuple[datetime, int | None] | None:
        """The time stamp and the newest revision after the refresh; None without a time stamp."""
        return (self.updated_at, self.revision) if self.updated_at else None

    @property
    def reached(self) -> "Checkpoint":
        """This checkpoint after its request has certainly taken effect.

        Then only the newest of the names in `written` counts.
        """
        return self.model_copy(update={"written": self.written[:1]})

    @property
    def versions(self) -> Iterator[tuple[str, int]]:
        """The model and the number of each snapshot in this checkpoint."""
        return ((table.model, table.version) for table in self.tables.values())

    def target(self, table: str) -> TableName:
        """Return the table in the published file that contains the rows of a declared table."""
        return TableName(EXTRACT_SCHEMA, EXTRACT_SCHEMA if len(self.tables) == 1 else table)

    @property
    def rows(self) -> Mapping[str, int]:
        """Maps each table to its number of published rows."""
        return {name: table.content.rows for name, table in self.tables.items()}


class Outcome(StrEnum):
    """How a request ended. Only DONE has changed the server for certain; LOST may have changed it.

    REFUSED: the server refused to start the request. LOST: the outcome can no longer be found out.
    """

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    LOST = "lost"

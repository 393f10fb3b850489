"""A checkpoint: what is known to be published."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum

from tableauhyperapi import TableName

from tableau_pipeline.core.snapshot import Fingerprint, Frozen
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, Column
from tableau_pipeline.outcome import Distrust


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
        days: as declared, like `as_of`. With equal models, equal rules give equal cutoffs.
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
        cursor: the column of an append, which was found to have a value in every published row;
            None if that was not checked.
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
        # Neither version nor cutoff counts: a window that moves past no rows changes nothing.
        return (self.columns, self.content) == (other.columns, other.content)


def columns_of(tables: Mapping[str, TableContent]) -> Mapping[str, tuple[Column, ...]]:
    """Return the columns of each table."""
    return {name: table.columns for name, table in tables.items()}


class NoUpdates(Frozen):
    """The server did not take the last update: the data source was published in full instead.

    Attributes:
        why: its refusal, or what it says of the job.
        is_final: there is no use in another try before something changes.
        since: when it was tried.
        declaration: the digest of the declared tables then, like in `Checkpoint`.
        version: of the server's REST API then.
    """

    why: str
    is_final: bool
    since: datetime
    declaration: str
    version: str


class Held(Frozen):
    """The `.tds` on the server, as it was read last.

    Attributes:
        digest: see `Metadata`, like `source`.
    """

    digest: str
    source: str | None = None


class SavedWork(Frozen):
    """What people made of a column or calculation that went.

    Attributes:
        path: the first parts of the paths of its values.
        work: what it was, in words.
        file: where the data source was saved before.
    """

    path: tuple[str, ...]
    work: str
    file: str


class Checkpoint(Frozen):
    """What is published, as far as known; valid only for this server, site and LUID.

    Attributes:
        refresh: the number of the refresh that left it; the highest counts.
        project: as declared, like `name`.
        luid: None only in an intent to create a data source.
        updated_at: as the server reported it after the refresh, like `revision`, which is None
            if the site keeps no revisions.
        declaration: the digest of the declared tables and relationships.
        metadata: a digest of the `.tds` after our last publish; edits by analysts change it.
        held: the `.tds` that goes with `updated_at` and `revision`; None if it is to be read again.
        adopted: `metadata` of the user whose data source was taken over, until they were seen to
            have been kept.
        owner: the LUID of the user who owned it before a publish, until the publisher has given it
            back.
        written: names the values of metadata that the declaration has set; the newest first, if it
            is not known whether a publish took effect.
        saved: the work of people on what is gone, until that is back.
        late_window: start and end of the job of our last update, if the time stamp had not moved
            by then: where that happens late, it may move still.
        updates: the number of updates since the last full publish.
        size: bytes of the file then.
        grown: bytes of the payloads since then.
        changed_at: when a refresh last changed the published rows.
        taken_at: when a refresh last made them equal to the models of that time, also if nothing
            had changed; refreshes of the metadata alone do not.
        compared_at: when they were last found to equal those of the models.
        no_updates: why the next change is published in full; None if an update may do.
        unreconciled: why the published rows were not compared with those of the models.
        distrust: why the contents must be compared before an update builds on this; None if not.
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
    held: Held | None = None
    adopted: str | None = None
    owner: str | None = None
    written: tuple[str, ...] = ()
    saved: tuple[SavedWork, ...] = ()
    late_window: tuple[datetime, datetime] | None = None
    updates: int = 0
    size: int | None = None
    grown: int = 0
    changed_at: datetime | None = None
    taken_at: datetime | None = None
    compared_at: datetime | None = None
    no_updates: NoUpdates | None = None
    unreconciled: str | None = "the comparison was interrupted"
    distrust: Distrust | None = None

    @property
    def reached(self) -> "Checkpoint":
        """The same, once it is certain that its request has taken effect."""
        return self.model_copy(update={"written": self.written[:1]})

    @property
    def versions(self) -> Iterator[tuple[str, int]]:
        """The snapshots that it refers to, by model and number."""
        return ((table.model, table.version) for table in self.tables.values())

    def target(self, table: str) -> TableName:
        """Return where the rows of a table are in the published file."""
        return TableName(EXTRACT_SCHEMA, EXTRACT_SCHEMA if len(self.tables) == 1 else table)

    @property
    def rows(self) -> Mapping[str, int]:
        """The published rows by table."""
        return {name: table.content.rows for name, table in self.tables.items()}


class Outcome(StrEnum):
    """How a request ended. Only DONE has any effect.

    REFUSED: the server refused before it began. LOST: the outcome can no longer be determined.
    """

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    LOST = "lost"

"""What is known to be published, and what a refresh records of its work."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field, ValidationError
from tableauhyperapi import TableName

from tableau_pipeline.core.counting import CountWay
from tableau_pipeline.core.snapshot import Fingerprint, Frozen
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA, Column

# The value of `unreconciled` until the published rows are compared with the models.
NOT_RECONCILED = "nobody has looked yet"


class PublishMode(StrEnum):
    """How a whole file replaces what the server holds.

    CREATE fails if the name is taken. REPLACE swaps the data and keeps the calculated fields,
    captions and folders that analysts added. OVERWRITE drops those.
    """

    CREATE = "create"
    REPLACE = "replace"
    OVERWRITE = "overwrite"


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


class Habits(Frozen):
    """The behaviour of a site where Tableau's documentation leaves it open.

    Attributes:
        moves_timestamp: whether `updatedAt` moves on a data update; None until observed.
        update_revisions: the number of revisions that a data update makes; None until observed.
        lag: the seconds by which `updatedAt` was observed to follow the job that moved it.
        counts: how the server was observed to count the rows of a table, by table.
    """

    moves_timestamp: bool | None = None
    update_revisions: int | None = None
    lag: float = 0
    counts: dict[str, CountWay] = Field(default_factory=dict)


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
        updates: the number of updates since the file was last published whole.
        size: bytes of that file.
        grown: bytes of the payloads since then.
        orphans: number of rows without a partner in the other table, by relationship; only if
            any.
        unreconciled: why the published rows were not compared with those of the models.
        suspect: why the contents must be compared before an update builds on this; None if not.
    """

    # A checkpoint of another format is an error, and never read as one of this format.
    format: Literal[2] = 2
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
    updates: int = 0
    size: int | None = None
    grown: int = 0
    orphans: dict[str, int] = Field(default_factory=dict)
    unreconciled: str | None = NOT_RECONCILED
    suspect: str | None = None
    habits: Habits = Habits()

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


class Owner(Frozen):
    """The owner of a refresh: a step of a run, and the process that executes it.

    Attributes:
        boot: the id of the machine's boot. With `namespace` it shows where `pid` is this
            process.
    """

    run_id: str
    step: str = ""
    attempt: int = 0
    boot: str = ""
    namespace: str = ""
    pid: int = 0


class Claim(Frozen):
    """The claim of a refresh to be the only one of the data source."""

    kind: Literal["claim"] = "claim"
    refresh: int
    id: str = Field(default_factory=lambda: str(uuid4()))
    owner: Owner
    claimed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Intent(Frozen):
    """What a refresh is about to send. It is recorded before, and again when more is known.

    Attributes:
        refresh: the number of the refresh; `step` counts its requests.
        request_id: identifies the request; the record that knows most about it counts.
        recorded_at: by the server's clock.
        mode: the mode of a whole file; None for an update of the published data.
        name: the name of the data source on the server.
        luid: the LUID of the data source that is changed; None for one to be created.
        before: the time stamp of the data source right before, like `before_revision`.
        target: the checkpoint once the request has taken effect; None if it is not a whole
            refresh.
        partial: why no update can build on it even if it is done: it is one part of a split
            update, it was written by hand, or somebody else changed the data source at the same
            time.
        job_id: the id of the server's job, as soon as it is known.
        outcome: None while it is open, that is, while it may or may not have taken effect.
    """

    kind: Literal["intent"] = "intent"
    refresh: int
    step: int = 1
    request_id: str = Field(default_factory=lambda: str(uuid4()))
    recorded_at: datetime
    run_id: str
    mode: PublishMode | None
    name: str
    project_id: str
    luid: str | None
    before: datetime | None = None
    before_revision: int | None = None
    target: Checkpoint | None
    partial: str | None = None
    job_id: str | None = None
    outcome: Outcome | None = None
    note: str | None = None

    @property
    def action(self) -> str:
        """The kind of request: an update, or a publish with its mode."""
        return f"publish ({self.mode})" if self.mode else "update"


class Closing(Frozen):
    """The end of a claim; with a checkpoint if the refresh was completed.

    Attributes:
        withdrawn: another claim was there first, and nothing was done.
    """

    kind: Literal["closing"] = "closing"
    refresh: int
    claim: str
    withdrawn: bool = False
    checkpoint: Checkpoint | None = None


class Former(Frozen):
    """The state in a record of an older format: which data source, and its rows by table."""

    kind: Literal["former"] = "former"
    refresh: int = 0
    server: str
    site: str
    project: str
    name: str
    luid: str
    rows: dict[str, int] = Field(default_factory=dict)

    @classmethod
    def of(cls, state: Any) -> "Former | None":
        """Read the state that an older release recorded; None if it is not one."""
        try:
            rows = {name: table["content"]["rows"] for name, table in state["tables"].items()}
            known = {name: state[name] for name in ("server", "site", "project", "name", "luid")}
            return cls(rows=rows, **known)
        except (KeyError, TypeError, AttributeError, ValidationError):
            return None


Record = Annotated[Claim | Intent | Closing | Former, Field(discriminator="kind")]

"""What we know to be published, and what a refresh records of what it does."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field, ValidationError

from tableau_pipeline.core.snapshot import Fingerprint, Frozen
from tableau_pipeline.hyper.tables import Column

# Of a checkpoint whose published rows are still to be compared with the models.
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
    """Where `retain` cuts: rows with `column` below `value` are not published.

    Attributes:
        days: as declared, and so `as_of`: of equal models, equal rules give equal cutoffs.
        value: a date or timestamp (UTC) as text.
    """

    column: str
    days: int
    as_of: str
    value: str


class TableContent(Frozen):
    """What a table holds, or is to hold: the rows of a version of its model.

    Attributes:
        model: its asset key; `version` is the number of the snapshot.
        all_rows: the fingerprint of all rows of the model.
        content: the fingerprint of the published rows: those that `cutoff` leaves.
        cutoff: None when every row of the model is published.
        key: columns that were found to identify every published row; none if nobody looked.
    """

    model: str
    version: int
    columns: tuple[Column, ...]
    all_rows: Fingerprint
    content: Fingerprint
    cutoff: Cutoff | None = None
    key: tuple[str, ...] = ()

    def same_content(self, other: "TableContent") -> bool:
        """Whether both hold the same rows in the same columns."""
        return (self.columns, self.content) == (other.columns, other.content)


class Habits(Frozen):
    """What a site has shown of things that Tableau's documents leave open.

    Attributes:
        moves_timestamp: whether `updatedAt` moves on a data update; None until one has shown it.
        update_revisions: how many revisions a data update makes; None until one has shown it.
        lag: seconds by which `updatedAt` was seen to come after the job that moved it.
    """

    moves_timestamp: bool | None = None
    update_revisions: int | None = None
    lag: float = 0


class Checkpoint(Frozen):
    """What is published, as far as we know; valid for that server, site and LUID alone.

    Attributes:
        refresh: the number of the refresh that left it; the highest counts.
        project: as it was declared, as is `name`.
        luid: None only in an intent to create a data source.
        updated_at: as the server told it after the refresh; so `revision`, None where the site
            keeps none.
        declaration: the digest of what the tables and relationships were declared to be.
        metadata: a digest of the `.tds` after our last publish: analysts' edits change it.
        updates: how many there were since the file was last published whole.
        size: bytes of that file.
        grown: bytes of the payloads since.
        orphans: rows that point at no row of the other table, by relationship; only where any do.
        unreconciled: why the published rows were not compared with those of the models.
        suspect: why the contents must be compared before anything builds on this; None if not.
    """

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

    @property
    def rows(self) -> Mapping[str, int]:
        """Published rows by table."""
        return {name: table.content.rows for name, table in self.tables.items()}


class Outcome(StrEnum):
    """How a sending ended. Only what is done has any effect.

    REFUSED: the server said no before it began. LOST: nobody will ever know.
    """

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    LOST = "lost"


class Owner(Frozen):
    """Who refreshes: a step of a run, and the process that executes it.

    Attributes:
        boot: of the machine; with `namespace` it says where `pid` means this process.
    """

    run_id: str
    step: str = ""
    attempt: int = 0
    boot: str = ""
    namespace: str = ""
    pid: int = 0


class Claim(Frozen):
    """A refresh says that it is the one that refreshes the data source."""

    kind: Literal["claim"] = "claim"
    refresh: int
    id: str = Field(default_factory=lambda: str(uuid4()))
    owner: Owner
    claimed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Intent(Frozen):
    """What a refresh is about to send; recorded before it is sent, and whenever more is known.

    Attributes:
        refresh: its number; `step` counts what it sends.
        request_id: names the sending; the record that knows most of it counts.
        recorded_at: by the clock of the server.
        mode: of a whole file; None for an update of the published data.
        name: of the data source on the server.
        luid: of the data source that is changed; None for one that is to be created.
        before: the time stamp of the data source right before; so `before_revision`.
        target: the checkpoint once it has taken effect; None where that is no whole refresh.
        partial: why nothing can build on it even if it is done: it is a part of a split update,
            or one that somebody wrote by hand, or somebody else was at work at the same time.
        job_id: of the server's job, as soon as it is known.
        outcome: None while it is open: it may or may not have taken effect.
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
        """What is sent, in a word or two."""
        return f"publish ({self.mode})" if self.mode else "update"


class Closing(Frozen):
    """A claim ends; with a checkpoint if the refresh has come to its end.

    Attributes:
        withdrawn: somebody else's claim was there first, and nothing was done.
    """

    kind: Literal["closing"] = "closing"
    refresh: int
    claim: str
    withdrawn: bool = False
    checkpoint: Checkpoint | None = None


class Former(Frozen):
    """What a record of an older format tells: which data source it was, and its rows by table."""

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
        """What the state that an older release recorded tells; None if it is not one."""
        try:
            rows = {name: table["content"]["rows"] for name, table in state["tables"].items()}
            known = {name: state[name] for name in ("server", "site", "project", "name", "luid")}
            return cls(rows=rows, **known)
        except (KeyError, TypeError, AttributeError, ValidationError):
            return None


Record = Annotated[Claim | Intent | Closing | Former, Field(discriminator="kind")]

"""What is known to be published, and what a refresh records of its work."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from typing import Annotated, Literal
from uuid import uuid4

from pydantic import Field, TypeAdapter, ValidationError
from tableauhyperapi import TableName

from tableau_pipeline.core.snapshot import Fingerprint, Frozen
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA, Column

# What a server can count of the tables that it publishes.


# What the server counts to learn the rows of a table; each way gives the exact number:
# * "table": the table itself.
# * "key": a column without NULL.
# * "cells": a column, by a calculation that takes NULL for a value. It needs a data source with
#   this table alone.
CountWay = Literal["table", "key", "cells"]

# The rows of a table, and the way in which they were counted.
Counted = tuple[int, CountWay]

# The number of values of a column that are not NULL, the number of different ones among them, and
# if asked for, the least and the greatest as text.
ColumnCounts = tuple[int | str, ...]


# The format of the records of this release. Whatever changes what a record means changes it.
FORMAT = 3
RELEASE = version("tableau_pipeline")


class PublishMode(StrEnum):
    """How a whole file replaces what the server holds.

    CREATE fails if the name is taken. REPLACE swaps the data and keeps the calculated fields,
    captions and folders that analysts added. OVERWRITE drops those.
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


class SiteBehaviour(Frozen):
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
    updates: int = 0
    size: int | None = None
    grown: int = 0
    orphans: dict[str, int] = Field(default_factory=dict)
    unreconciled: str | None = "the comparison was interrupted"
    distrust: str | None = None
    behaviour: SiteBehaviour = SiteBehaviour()

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


class JournalRecord(Frozen):
    """A record in the journal of a data source.

    Attributes:
        release: the release that wrote it, to be named by one that does not understand it.
    """

    format: Literal[3] = FORMAT
    release: str = RELEASE


class Claim(JournalRecord):
    """The claim of a refresh to be the only one of the data source."""

    kind: Literal["claim"] = "claim"
    refresh: int
    id: str = Field(default_factory=lambda: str(uuid4()))
    owner: Owner
    claimed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Intent(JournalRecord):
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
        distrust: why no update can build on it even if it is done: it is one part of a split
            update, it was written by hand, or another user changed the data source at the same
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
    distrust: str | None = None
    job_id: str | None = None
    outcome: Outcome | None = None
    note: str | None = None

    @property
    def action(self) -> str:
        """The kind of request: an update, or a publish with its mode."""
        return f"publish ({self.mode})" if self.mode else "update"


class ClaimRelease(JournalRecord):
    """The end of a claim; with a checkpoint if the refresh was completed.

    Attributes:
        withdrawn: another claim was there first, and nothing was done.
    """

    kind: Literal["closing"] = "closing"
    refresh: int
    claim: str
    run_id: str = ""
    closed_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    withdrawn: bool = False
    checkpoint: Checkpoint | None = None


class Recovered(JournalRecord):
    """What the records add up to, once every request has its outcome.

    A refresh records it before it sends anything, so that later ones need not read the requests
    that it has accounted for, however many refreshes fail one after another.

    Attributes:
        refresh: the number of the refresh that recorded it.
        through: the requests of all refreshes up to this number are accounted for.
        record: the newest checkpoint that the server may hold.
        pending: the content of the newest request that may have taken effect or not; None if
            that is `record`.
        distrust: why no update may build on `record`; None if one may.
        sent: the request that led to `record`, without its target, if no refresh has observed
            its result yet.
        creating: the request, without its target, that may have created the data source, before
            its LUID was recorded.
        rows: the largest number of rows that each table may have, by all records.
        left: digests of the metadata that our refreshes left or found.
    """

    kind: Literal["recovered"] = "recovered"
    refresh: int = 0
    through: int = 0
    record: Checkpoint | None = None
    pending: Checkpoint | None = None
    distrust: str | None = None
    sent: Intent | None = None
    creating: Intent | None = None
    rows: dict[str, int] = Field(default_factory=dict)
    left: frozenset[str] = frozenset()

    @classmethod
    def at(cls, checkpoint: Checkpoint) -> "Recovered":
        """Return the state after a refresh that was completed."""
        number = checkpoint.refresh
        return cls(refresh=number, through=number).holding(checkpoint)

    @property
    def luid(self) -> str | None:
        """The LUID of the data source that is certainly ours."""
        return self.record.luid if self.record else None

    @property
    def published(self) -> tuple[Checkpoint, ...]:
        """The contents that the server may hold, the newest first."""
        return tuple(each for each in (self.pending, self.record) if each)

    def after(self, intent: Intent) -> "Recovered":
        """Return this state with one more request taken into account."""
        target, is_new = intent.target, intent.mode in NEW_METADATA
        bare = intent.model_copy(update={"target": None})
        now = self._with(creating=bare) if intent.luid is None else self
        match intent.outcome:
            case Outcome.DONE if target:
                # A publish replaces all content, and with it whatever was distrusted.
                now = now._with(rows={}, pending=None).holding(target)
                return now._with(distrust=intent.distrust, sent=None if intent.distrust else bare)
            case Outcome.DONE:
                return now._with(distrust=intent.distrust or "a part of it was changed")
            case Outcome.FAILED:
                # It left no trace, but the same update would only fail again; a whole file helps.
                why = intent.note or "without a note"
                return self._with(distrust=f"the last {intent.action} failed on the server ({why})")
            case Outcome.LOST | None:
                # If the server took the rows, their snapshots are still needed.
                pending = target or self.pending
                if intent.luid and intent.luid != self.luid:
                    # A request that may never have happened does not make a data source ours.
                    return self._with(pending=pending)
                lost = "an earlier refresh was interrupted, and what it left is not known"
                held = now.holding(target) if target else now
                # Replace keeps the metadata, and so the schema in the record.
                record = held.record if is_new or self.record is None else self.record
                return held._with(record=record, pending=pending, distrust=lost, sent=None)
            # It was cancelled or refused, so the server still holds what it held before.
            case _:
                return self

    def holding(self, target: Checkpoint) -> "Recovered":
        """Return this state, given that the server may hold the content of this checkpoint."""
        # A request that may not have landed must not lower the bar for guard.max_shrink.
        rows = {name: max(count, self.rows.get(name, 0)) for name, count in target.rows.items()}
        return self._with(
            record=target.model_copy(update={"luid": target.luid or self.luid}),
            rows={**self.rows, **rows},
            left=self.left | ({target.metadata} if target.metadata else set()),
        )

    def distrusted(self, why: str) -> "Recovered":
        """Return this state with a reason why no update may build on it."""
        return self._with(distrust=why)

    def recorded_by(self, refresh: int) -> "Recovered":
        """Return this state as a refresh records it, which has accounted for all earlier ones."""
        return self._with(refresh=refresh, through=refresh - 1)

    def _with(self, **changes: object) -> "Recovered":
        return self.model_copy(update=changes)


Record = Annotated[Claim | Intent | ClaimRelease | Recovered, Field(discriminator="kind")]
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def read_record(stored: object, *, repair: str) -> Record:
    """Read a record from its JSON value.

    Args:
        repair: what a user can do about a damaged one.

    Raises:
        RefusedError: this release does not understand it. It must not be skipped, as it may be a
            claim, or a request that may still take effect.
    """
    try:
        return _RECORD.validate_json(json.dumps(stored))
    except ValidationError as error:
        raise RefusedError(not_understood(stored, error, repair=repair)) from error


def not_understood(stored: object, error: ValidationError, *, repair: str) -> str:
    """Return why a record, or a file of them, cannot be read, and the remedy."""
    written = stored if isinstance(stored, dict) else {}
    found = written.get("format")
    if isinstance(found, int) and found > FORMAT:
        return (
            f"release {written.get('release', 'unknown')} of tableau_pipeline wrote it (format "
            f"{found}), and this is release {RELEASE} (format {FORMAT}). "
            "Upgrade this deployment: only one release may refresh a data source"
        )
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "all of it"
    return f"it is damaged, or not a record ({where}: {first['msg']}). {repair}"

"""The results of refreshes, audits and builds, with their summaries."""

from collections.abc import Mapping
from dataclasses import dataclass

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.metadata.merge import Merge, Values
from tableau_pipeline.refresh.decide import Plan, Publish
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.planning import Planned, decision_of, reason_of, work_of
from tableau_pipeline.refresh.reconcile import Reconciliation
from tableau_pipeline.rendering import megabytes


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a refresh that succeeded.

    Attributes:
        planned: the plan of the last attempt.
        extract: the file that was built, see `Delivery.deliver`; None if no file was built.
        reconciliation: how the published data compares with the models; None if nothing was
            compared.
        uploaded: the size in bytes of each file that the last attempt sent. The first publish with
            declared metadata sends two files: the second file sets the metadata in the `.tds` that
            the server made from the first file.
        moves: phrases that say how the refresh changed the name and the project, over all its
            attempts; the keys are "rename" and "move".
        merged: the merge with the metadata on the server; None if there was no metadata to keep or
            set.
        warnings: sentences that a user should read, although the refresh succeeded.
        problems: how the properties on the server differ from the declared properties.
        job_id: the id of the server's job that carried out the last request; None if there is none.
        requests: how many requests the session sent, including the sign-in but not the sign-out.
        seconds: how many seconds each phase took; the key "total" is for the whole refresh.
    """

    planned: Planned
    checkpoint: Checkpoint
    remote: RemoteDatasource
    extract: Extract | None
    reconciliation: Reconciliation | None
    uploaded: tuple[int, ...]
    moves: Mapping[str, str]
    merged: Merge | None
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    job_id: str | None
    requests: int
    seconds: Mapping[str, float]

    @property
    def sent(self) -> int:
        """The total size of the files in `uploaded`, in bytes."""
        return sum(self.uploaded)

    @property
    def plan(self) -> Plan:
        """The decision of the last attempt."""
        return self.planned.plan

    @property
    def decision(self) -> str:
        """What the refresh did, in a few words."""
        return decision_of(self.plan, self.moves)

    @property
    def reason(self) -> str:
        """The reason for the decision, in words."""
        return reason_of(self.plan, self.moves)

    @property
    def tables(self) -> Mapping[str, RowCounts]:
        """How many rows an update deleted and inserted, for each table that it changed."""
        return self.planned.tables

    @property
    def before(self) -> Mapping[str, int]:
        """The number of rows that each table had before the refresh; {} if this is not known."""
        return self.planned.base.rows or {}

    @property
    def declared_values(self) -> Values:
        """The declared and inherited metadata."""
        return self.planned.declared_values

    @property
    def summary(self) -> str:
        """One line, such as "Flights: update, -433 +419 rows, 0.13 MB in 2.1 s, equal by count"."""
        declaration, extract = self.planned.metadata.declaration, self.extract
        work = work_of(self.plan, self.moves, self.tables, extract)
        if isinstance(self.plan, Publish) and extract:
            work += f", {_rows_and_size(declaration, extract)}"
            if more_files := self.uploaded[1:]:
                work += f" ({megabytes(self.sent)} sent, in {len(more_files) + 1} files)"
        line = f"{declaration.name}: {work} in {self.seconds['total']:.1f} s"
        return ", ".join(filter(None, [line, comparison(self), self.remote.link]))


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of an audit.

    Attributes:
        checkpoint: the checkpoint, the record of the last refresh; None if there was no refresh.
        reconciliation: how the published rows compare with `checkpoint`; None if we do not know
            which rows should be published.
    """

    base: Base
    checkpoint: Checkpoint | None
    reconciliation: Reconciliation | None


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a build: a file that was not sent."""

    declaration: Declaration
    extract: Extract
    seconds: Mapping[str, float]

    @property
    def decision(self) -> str:
        """What was done."""
        return "build"

    @property
    def summary(self) -> str:
        """One line about the file."""
        built = _rows_and_size(self.declaration, self.extract)
        seconds, file = f"{self.seconds['total']:.1f} s", self.extract.path.as_uri()
        return f"{self.declaration.name}: built only, {built} in {seconds}, {file}"


def _rows_and_size(declaration: Declaration, extract: Extract) -> str:
    # Count only the rows of the fact table: the other tables describe these rows.
    rows = extract.rows.get(declaration.published_name(declaration.fact_table), 0)
    return f"{rows:,} rows, {megabytes(extract.size)}"


# The results that have a summary.
Done = Refreshed | Planned | Built


def comparison(done: Refreshed) -> str:
    """Describe how the published data was compared with the models."""
    how, reason = compared(done)
    return f"{how}: {reason}" if reason else how


def compared(done: Refreshed) -> tuple[str, str]:
    """Return the state of the comparison in words, and the reason if nothing was compared."""
    checkpoint, reconciliation = done.checkpoint, done.reconciliation
    if checkpoint.distrust:
        return "to be compared by the next refresh", str(checkpoint.distrust)
    if checkpoint.unreconciled:
        return "not compared", checkpoint.unreconciled
    if reconciliation is None:
        when = checkpoint.compared_at
        return f"equal when last compared{f', {when:%Y-%m-%d %H:%M} UTC' if when else ''}", ""
    return f"equal by {reconciliation.way}", ""

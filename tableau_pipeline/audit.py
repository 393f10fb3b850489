"""Audit a published data source: compare it with its checkpoint and models, and change nothing."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tableau_pipeline.core.checkpoint import Checkpoint, Claim, Recovered
from tableau_pipeline.core.declaration import Declaration, tags_of
from tableau_pipeline.core.journal import History, read_history
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.extracts.checks import Declared
from tableau_pipeline.extracts.compare import Reconciliation
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import live_claims
from tableau_pipeline.refresh.jobs import Jobs
from tableau_pipeline.refresh.observe import Observer, Published, Recovery, moves
from tableau_pipeline.refresh.reconcile import Reconciler
from tableau_pipeline.refresh.refresh import Refresh

# Not the log of the run, which has one line for each data source.
_LOG = logging.getLogger(__name__)


class Finding(StrEnum):
    """What an audit found.

    EQUAL: its rows were compared, and are those of the last refresh.
    UNCHANGED: its time stamp and revision are those of the last refresh; no rows were compared.
    DIFFERS: its rows are not those of the last refresh, though its time stamp is.
    DRIFTED: it is not what the last refresh left, or that is not certain.
    GONE: a refresh published it, and it is no longer there.
    NOT_REFRESHED: no refresh has published it yet.
    FOREIGN: another deployment publishes it.
    REFRESHING: a refresh ran during the audit, so nothing can be said.
    FAILED: it could not be looked at.
    """

    EQUAL = "equal"
    UNCHANGED = "unchanged"
    DIFFERS = "rows differ"
    DRIFTED = "drifted"
    GONE = "gone"
    NOT_REFRESHED = "not refreshed yet"
    FOREIGN = "published by another deployment"
    REFRESHING = "not looked at"
    FAILED = "could not look"


_WRONG = (Finding.DIFFERS, Finding.DRIFTED, Finding.GONE, Finding.FAILED)
_REMEDIES: Mapping[Finding, str] = {
    Finding.DIFFERS: "Run its refresh with full: true",
    Finding.DRIFTED: "Run its refresh",
    Finding.GONE: "Run its refresh",
    Finding.NOT_REFRESHED: "Run its refresh",
    Finding.FOREIGN: "Remove it from one of the deployments, or run its refresh with "
    "accept: [takeover]",
    Finding.REFRESHING: "Run the audit again later",
}


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit found of one declared data source.

    Attributes:
        why: what explains the finding; None if nothing has to.
        compared: in which way the rows were compared; None if they were not.
        expected: rows by table that the last refresh left.
        rows: rows by table on the server, as far as they were counted.
        warnings: what others have changed that is no difference of rows.
        newer: the models with rows that are not published yet.
        link: the URL of its page; None if there is none.
    """

    declaration: Declaration
    finding: Finding
    why: str | None = None
    compared: str | None = None
    expected: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    link: str | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether readers may see other rows than those of the last refresh."""
        return self.finding in _WRONG

    @property
    def is_fine(self) -> bool:
        """Whether nobody has to look at it."""
        return self.finding is Finding.EQUAL and not self.warnings

    @property
    def note(self) -> str:
        """All that explains the finding, and the remedy, in sentences."""
        newer = [f"Not published yet: new rows of {model}" for model in self.newer]
        remedy = _REMEDIES.get(self.finding)
        parts = [self.why, *self.warnings, *newer, remedy]
        return " ".join(f"{part.rstrip('.')}." for part in parts if part)


def audit(refresh: Refresh, server: TableauSite) -> Audited:
    """Compare the data source of a refresh with its checkpoint and models.

    It changes neither the server nor the journal, and takes no claim. An error is a finding.
    """
    try:
        return _audited(refresh, server)
    except Exception as error:  # noqa: BLE001 - it must not keep others from being looked at
        _LOG.debug("%s could not be audited", refresh.declaration.key, exc_info=error)
        return Audited(refresh.declaration, Finding.FAILED, str(error) or repr(error))


def _audited(refresh: Refresh, server: TableauSite) -> Audited:
    journal = refresh.journal
    before = read_history(journal.records())
    if running := live_claims(before.open_claims, journal):
        return _not_looked_at(refresh.declaration, running)
    found = _Auditor(refresh, server).audit(before)
    # A refresh records its claim before it sends anything, so one that ran meanwhile shows here.
    after = read_history(journal.records())
    if after != before:
        known = {claim.id for claim in before.claims}
        return _not_looked_at(
            refresh.declaration, [claim for claim in after.claims if claim.id not in known]
        )
    return found


def _not_looked_at(declaration: Declaration, claims: Sequence[Claim]) -> Audited:
    by = f"run {claims[-1].owner.run_id} is refreshing it" if claims else "its records changed"
    return Audited(declaration, Finding.REFRESHING, by)


class _Auditor:
    """Audits one data source, with the means of a refresh."""

    def __init__(self, refresh: Refresh, server: TableauSite) -> None:
        self._refresh = refresh
        self._declaration = refresh.declaration
        self._server = server
        self._tags = tags_of(refresh.declaration.key, refresh.journal.instance)
        self._models = Declared(refresh.snapshots, refresh.declaration.types)
        self._reconciler = Reconciler(
            declaration=refresh.declaration,
            snapshots=self._models,
            server=server,
            hyper=refresh.hyper,
            log=_LOG,
            sleep=refresh.sleep,
        )

    def audit(self, history: History) -> Audited:
        refresh, declaration, server = self._refresh, self._declaration, self._server
        jobs = Jobs(server, refresh.timeouts, refresh.sleep, _LOG)
        recovered = Recovery(jobs, claim=None).recover(history)
        project_id = server.find_project(declaration.project)
        observer = Observer(declaration, server, self._reconciler, self._tags, _LOG)
        published = observer.observe(recovered, project_id)
        if published.remote is None or published.strays:
            absent = Finding.GONE if recovered.luid else Finding.NOT_REFRESHED
            luids = ", ".join(each.luid for each in published.strays)
            return Audited(declaration, absent, f"its tag is on {luids}" if luids else None)
        found = self._judged(published, published.remote, recovered)
        if published.remote.luid == recovered.luid and found.finding is not Finding.FOREIGN:
            moved = moves(declaration, published.remote, recovered=recovered, project_id=project_id)
            edits = self._edits(published, published.remote)
            found = replace(found, warnings=(*moved, *edits, *found.warnings))
        return replace(found, link=published.remote.link)

    def _judged(
        self, published: Published, remote: RemoteDatasource, recovered: Recovered
    ) -> Audited:
        declaration, record = self._declaration, published.record
        if published.other_instance:
            return Audited(declaration, Finding.FOREIGN, f"its tag is {published.other_instance}")
        if published.other_key:
            return Audited(declaration, Finding.FOREIGN, f'its key is "{published.other_key}"')
        if not published.is_ours:
            if recovered.luid:
                return Audited(declaration, Finding.GONE, published.untrusted)
            why = "this pipeline did not publish the data source that has its name"
            return Audited(declaration, Finding.NOT_REFRESHED, why)
        if published.untrusted or record is None:
            expected = record.rows if record else {}
            return Audited(declaration, Finding.DRIFTED, published.untrusted, expected=expected)
        found = self._compared(record, remote)
        return replace(
            found,
            expected=record.rows,
            warnings=published.warnings,
            newer=tuple(self._newer(record)),
        )

    def _compared(self, record: Checkpoint, remote: RemoteDatasource) -> Audited:
        """Compare the rows: one by one if the file may be read, or else as a refresh does."""
        judged = self._reconciler.judge(record, remote)
        if not judged.skipped:
            return self._equal_or_not(judged, "row by row")
        counted = self._reconciler.compare(record, remote)
        if counted.skipped:
            why = f"its rows were not compared: {counted.skipped}"
            return Audited(self._declaration, Finding.UNCHANGED, why)
        found = self._equal_or_not(counted, counted.way)
        return replace(found, why=found.why or f"not compared row by row: {judged.skipped}")

    def _equal_or_not(self, found: Reconciliation, way: str) -> Audited:
        finding = Finding.DIFFERS if found.problem else Finding.EQUAL
        return Audited(self._declaration, finding, found.problem, compared=way, rows=found.rows)

    def _edits(self, published: Published, remote: RemoteDatasource) -> list[str]:
        found = []
        # Without any digest of ours, nobody knows whether it was edited.
        if published.left and published.is_edited:
            found.append("Somebody edited calculated fields, captions or folders")
        found += [f"Somebody removed the tag {tag}" for tag in sorted(self._tags - remote.tags)]
        return found

    def _newer(self, record: Checkpoint) -> list[str]:
        newest = {model: self._models.newest(model) for model, _ in record.versions}
        return [
            table.model
            for table in record.tables.values()
            if (found := newest[table.model]) and found.fingerprint != table.all_rows
        ]

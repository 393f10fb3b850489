"""Audit a published data source: compare it with its checkpoint and models, and change nothing."""

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tableau_pipeline.core.declaration import tags_of
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.extracts.checks import TypedSnapshots
from tableau_pipeline.extracts.compare import Reconciliation
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import live_claims
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.plan import Options
from tableau_pipeline.refresh.refresh import Setup, refresh
from tableau_pipeline.refresh.report import Report

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
    UNDECLARED: it has the tag of a pipeline, and no declaration here.
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
    UNDECLARED = "not declared here"


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
    """What an audit found of one data source.

    Attributes:
        key: its asset key; its name if it is not declared here.
        why: what explains the finding; None if nothing has to.
        compared: in which way the rows were compared; None if they were not.
        expected: rows by table that the last refresh left.
        rows: rows by table on the server, as far as they were counted.
        warnings: what other users have changed that is no difference of rows.
        newer: the models with rows that are not published yet.
        link: the URL of its page; None if there is none.
    """

    key: str
    name: str
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
        """Whether no person has to look at it."""
        return self.finding is Finding.EQUAL and not self.warnings

    @property
    def note(self) -> str:
        """All that explains the finding, and the remedy, in sentences."""
        newer = [f"Not published yet: new rows of {model}" for model in self.newer]
        remedy = _REMEDIES.get(self.finding)
        parts = [self.why, *self.warnings, *newer, remedy]
        return " ".join(f"{part.rstrip('.')}." for part in parts if part)


def audit(setup: Setup, server: TableauSite) -> Audited:
    """Compare a data source with its last checkpoint and its models.

    It changes neither the server nor the journal, and takes no claim. An error is a finding.
    """
    try:
        return _audited(replace(setup, log=_LOG, server=lambda: nullcontext(server)))
    except Exception as error:  # noqa: BLE001 - all other data sources are looked at, too
        _LOG.debug("%s could not be audited", setup.declaration.key, exc_info=error)
        return _of(setup, Finding.FAILED, str(error) or repr(error))


def _of(setup: Setup, finding: Finding, why: str | None = None) -> Audited:
    return Audited(setup.declaration.key, setup.declaration.name, finding, why)


def _audited(setup: Setup) -> Audited:
    journal = setup.journal
    before = read_history(journal.records())
    refreshing = live_claims(before.open_claims, journal)
    if not refreshing:
        report = refresh(setup, Options(audit=True))
        # A refresh records its claim before it sends anything, so one that ran meanwhile shows.
        after = read_history(journal.records())
        if after == before:
            return _found(setup, report)
        known = {claim.id for claim in before.claims}
        refreshing = [claim for claim in after.claims if claim.id not in known]
    who = f"run {refreshing[-1].owner.run_id} is refreshing it" if refreshing else None
    return _of(setup, Finding.REFRESHING, who or "its records changed")


def _found(setup: Setup, report: Report) -> Audited:
    """What the look of a refresh has found, in the words of an audit."""
    base, luid = report.base, report.checkpoint.luid if report.checkpoint else None
    if base is None:
        raise ValueError("an audit looks at the server")
    if base.remote is None or base.strays:
        absent = Finding.GONE if luid else Finding.NOT_REFRESHED
        luids = ", ".join(each.luid for each in base.strays)
        return _of(setup, absent, f"its tag is on {luids}" if luids else None)
    compared, checkpoint = report.reconciliation, base.checkpoint
    finding, why = _judged(base, compared, is_known=luid is not None)
    found = replace(_of(setup, finding, why), link=base.remote.link)
    if finding in (Finding.FOREIGN, Finding.NOT_REFRESHED, Finding.GONE):
        return found
    if base.remote.luid == luid:
        # Without any digest of ours, it is not known whether it was edited.
        edited = "Another user edited calculated fields, captions or folders"
        edits = [edited] if base.left and base.is_edited else []
        ours = tags_of(setup.declaration.key, setup.journal.instance)
        edits += [f"Another user removed the tag {tag}" for tag in sorted(ours - base.remote.tags)]
        found = replace(found, warnings=(*base.moved, *edits))
    if checkpoint is None:
        return found
    found = replace(found, expected=checkpoint.rows)
    if compared is None:
        return found
    models = TypedSnapshots(setup.snapshots, setup.declaration.types)
    newest = {each.model: (models.newest(each.model), each) for each in checkpoint.tables.values()}
    return replace(
        found,
        compared=None if compared.skipped else compared.way,
        rows={} if compared.skipped else compared.rows,
        warnings=(*found.warnings, *base.warnings),
        newer=tuple(
            model for model, (new, old) in newest.items() if new and new.fingerprint != old.all_rows
        ),
    )


def _judged(
    base: Base, compared: Reconciliation | None, *, is_known: bool
) -> tuple[Finding, str | None]:
    if base.other_instance:
        return Finding.FOREIGN, f"its tag is {base.other_instance}"
    if base.other_key:
        return Finding.FOREIGN, f'its key is "{base.other_key}"'
    if not base.is_ours and is_known:
        return Finding.GONE, base.distrust
    if not base.is_ours:
        why = "this pipeline did not publish the data source that has its name"
        return Finding.NOT_REFRESHED, why
    if compared is None:
        return Finding.DRIFTED, base.distrust
    if compared.skipped:
        return Finding.UNCHANGED, f"its rows were not compared: {compared.skipped}"
    return (
        Finding.DIFFERS if compared.problem else Finding.EQUAL,
        compared.problem or compared.note,
    )

"""One refresh of one data source: claim, recover, observe, plan, deliver, reconcile, record.

No update builds on what is not known or not confirmed, or on what another user may have changed:
`distrust` says why, wherever it stands, and also in records. The refresh that finds it is a full
publish.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial

from tableau_pipeline.core.checkpoint import Checkpoint, Held, NoUpdates, TableContent
from tableau_pipeline.core.declaration import tags_of
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.journal import History, Recovered, read_history
from tableau_pipeline.core.site_record import SiteRecord
from tableau_pipeline.errors import DriftError, NoUpdatesError, RefreshError, RefusedError
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.checks import readable
from tableau_pipeline.extracts.delta import Delta, counts, remove, total
from tableau_pipeline.extracts.desired import Declared
from tableau_pipeline.metadata.merge import Merge, Written, conflict_phrases, is_about
from tableau_pipeline.outcome import Accept, Distrust, Doubt
from tableau_pipeline.publishing.about import AboutOnServer
from tableau_pipeline.publishing.jobs import Jobs
from tableau_pipeline.publishing.site import LARGEST_PAYLOAD, TableauSite
from tableau_pipeline.refresh.claim import HeldClaim, claimed
from tableau_pipeline.refresh.deliver import Delivery, tell
from tableau_pipeline.refresh.effects import Effects
from tableau_pipeline.refresh.observe import Base, Observer, recorded
from tableau_pipeline.refresh.plan import (
    Changed,
    Facts,
    NoChange,
    Options,
    Plan,
    Publish,
    Refuse,
    UpdateTables,
    by_size,
    check_problems,
    decide,
    guard_problems,
    in_full,
    lost_credentials,
    lost_work,
    not_ours,
    returned_work,
)
from tableau_pipeline.refresh.reconcile import (
    Reconciler,
    Reconciliation,
    ReconciliationError,
    layout_differences,
)
from tableau_pipeline.refresh.recover import recover
from tableau_pipeline.refresh.report import Report, phase, summary
from tableau_pipeline.refresh.send import LostError, Sender, Sent, SentError, completed
from tableau_pipeline.refresh.setup import Setup, newest_models
from tableau_pipeline.refresh.updates import record_of, whole_files

# What is logged of each decision, with its reason.
DECISION = "Decision: %s. Reason: %s"


def refresh(setup: Setup, options: Options) -> Report:
    """Make the published data source equal to its models, or report why not.

    Raises:
        RefusedError: the refresh would be wrong or unsafe. Nothing was sent or overwritten, unless
            its first attempt was distrusted, and its second one refused.
        RefreshError: the refresh failed; the next run finds out what became of it.
    """
    with _opened(setup, options) as phases:
        if options.build_only:
            return phases.build()
        past = phases.recover()
        for is_last in (False, True):
            base = phases.observe(past)
            if options.audit:
                return phases.audit(past, base)
            planned = phases.plan(base)
            if options.dry_run:
                return phases.rehearse(planned)
            try:
                sent = phases.deliver(planned)
            except (DriftError, NoUpdatesError, SentError) as error:
                # Nothing took effect, or nobody knows: the server is observed again, but not a
                # third time.
                if is_last or not phases.may_go_on(planned, error):
                    raise
                setup.log.warning("%s", error)
                past = past.after(error.intent) if isinstance(error, SentError) else past
                continue
            if sent.distrust is None or is_last:
                break
            setup.log.warning("%s. Everything is published again", sent.distrust)
            # The rows may be ours and another user's: only a whole file makes all of them ours.
            past = (past.after(sent.intent) if sent.intent else past).distrusted(sent.distrust)
        found = None
        try:
            found = phases.reconcile(sent)
            sent = phases.tell(sent, found)
        finally:
            # If the comparison breaks off, what was sent is known all the same.
            checkpoint = phases.record(planned, sent, found)
        if found and found.problem:
            raise ReconciliationError(found)
        return phases.report(planned, sent, found, checkpoint)


@dataclass(frozen=True, slots=True)
class Planned:
    """What is to be done, and all that it takes.

    Attributes:
        desired: the content of each table.
        report: what is known so far.
        declared: the declared metadata; `merged` is what becomes of those on the server.
        deltas: of an update, in the order in which they are sent.
    """

    base: Base
    desired: Mapping[str, TableContent]
    plan: Plan
    report: Report
    declared: Declared
    merged: Merge | None = None
    deltas: Sequence[Delta] = ()


class _Phases:
    """The phases of one refresh, with all that was opened for it."""

    def __init__(
        self,
        setup: Setup,
        options: Options,
        builder: Builder,
        site: TableauSite | None,
        claim: HeldClaim | None,
        history: History,
    ) -> None:
        takeover = {Accept.TAKEOVER} if setup.takeover else set()
        self._setup, self._declaration = setup, setup.declaration
        self._options = replace(options, accept=options.accept | takeover)
        self._builder, self._site, self._claim, self._history = builder, site, claim, history
        self._started = time.monotonic()
        self._seconds: dict[str, float] = {}
        # What became of its name and its project, by "rename" and "move", in every attempt.
        self._moves: dict[str, str] = {}
        self._warnings: list[str] = []
        self._teller: Callable[..., Sent] | None = None
        self._no_updates: NoUpdates | None = None
        self._is_refused_as_another_users = False

    @property
    def _server(self) -> TableauSite:
        if self._site is None:
            raise ValueError("this refresh asks no server")
        return self._site

    @cached_property
    def _tags(self) -> frozenset[str]:
        return tags_of(self._declaration.key, self._setup.journal.instance)

    @cached_property
    def _jobs(self) -> Jobs:
        setup = self._setup
        return Jobs(self._server, setup.timeouts, setup.sleep, setup.log)

    @cached_property
    def _reconciler(self) -> Reconciler:
        return Reconciler(
            declaration=self._declaration,
            snapshots=self._builder.snapshots,
            server=self._server,
            hyper=self._setup.hyper,
            log=self._setup.log,
            sleep=self._setup.sleep,
        )

    @cached_property
    def _sender(self) -> Sender:
        if self._claim is None:
            raise ValueError("only a claimed data source is sent to")
        claim, seconds = self._claim, self._seconds
        return Sender(claim, self._jobs, self._tags, self._record, self._effects, seconds)

    @cached_property
    def _effects(self) -> Effects:
        return Effects(self._server, self._reconciler.likeness)

    @cached_property
    def _record(self) -> SiteRecord:
        return record_of(self._server, self._setup.sites)

    def recover(self) -> Recovered:
        """Find out what became of what earlier refreshes have sent."""
        with phase(self._seconds, "recover"):
            effects = None if self._options.offline else self._effects
            return recover(self._history, self._sender if self._claim else None, effects)

    def observe(self, past: Recovered) -> Base:
        """Look at the data source on the server."""
        if self._options.offline:
            return recorded(self._declaration, past)
        declaration, server = self._declaration, self._server
        log, is_look = self._setup.log, not self._options.sends
        observer = Observer(
            declaration,
            server,
            self._reconciler,
            self._tags,
            site=self._record.facts,
            log=log,
            is_look=is_look,
        )
        # It is created only when a file is sent: a refused refresh must not leave an empty project.
        if declaration.create_project or self._options.audit:
            return observer.observe(past, server.find_project(declaration.project))
        return observer.observe(past, server.project(declaration.project, create=False))

    def audit(self, past: Recovered, base: Base) -> Report:
        """Compare the rows with the last checkpoint, if it is known which ones they should be."""
        report = Report(plan=None, base=base, checkpoint=past.record)
        if base.remote is None or base.checkpoint is None or base.distrust:
            return report
        found = self._reconciler.audit(base.checkpoint, base.remote)
        return replace(report, reconciliation=found)

    def plan(self, base: Base) -> Planned:
        """Read the models, and decide; a changed table decides by the size of its update."""
        planned = self._planned(base)
        held = base.metadata
        if held and not held.tds and self._site and isinstance(planned.plan, Publish | Refuse):
            # What records tell of it is enough only while it stays as it is.
            read = self._server.metadata(planned.base.remote.luid) if planned.base.remote else None
            planned = self._planned(replace(base, metadata=read))
        plan = planned.plan
        if not isinstance(plan, Refuse):
            # The refusal itself says it.
            self._setup.log.info(DECISION, planned.report.decision, planned.report.reason)
        return planned

    def _planned(self, base: Base) -> Planned:
        declaration = self._declaration
        with phase(self._seconds, "plan"):
            if self._options.metadata_only:
                record = base.checkpoint if base.remote else None
                self._builder, desired = self._builder.pinned(record)
            else:
                desired = self._builder.desired(base.checkpoint)
            declared, merged = self._metadata(desired, base)
            facts = Facts(
                declaration=declaration,
                desired=desired,
                base=base,
                differences=self._differences(desired, base),
                metadata=merged,
                rejected=self._setup.rejected(),
            )
            plan, deltas = decide(facts, self._options), []
        if isinstance(plan, Changed):
            if why := self._whole_files(plan, base.remote):
                plan = in_full(plan, why)
            else:
                plan, deltas = self._by_size(plan, desired)
        if base.checkpoint and isinstance(plan, NoChange | UpdateTables):
            # A publish checks all tables anyway. Otherwise a key that was declared since then would
            # pass unchecked until the next change of the rows.
            changed = plan.tables if isinstance(plan, UpdateTables) else ()
            with phase(self._seconds, "plan"):
                self._builder.check_unchanged(desired, base.checkpoint, changed=changed)
        report = Report(
            plan=plan,
            remote=base.remote,
            warnings=(
                *base.warnings,
                *lost_credentials(plan, base),
                *lost_work(plan, merged),
                *returned_work(base, declared),
            ),
            before=base.rows or {},
            moves=base.move.phrases if base.move else {},
            base=base,
            desired=desired,
            wanted=declared.wanted,
            merged=merged,
        )
        return Planned(base, desired, plan, report, declared, merged, deltas)

    def _reads_jobs(self) -> bool:
        # A dry run neither claims nor remembers.
        return self._sender.reads_jobs() if self._claim else self._server.may_read_jobs()

    def _whole_files(self, changed: Changed, remote: RemoteDatasource | None) -> str | None:
        """Why only whole files are to be sent; None if an update may be."""
        if self._site is None:
            return None
        found = whole_files(
            self._server,
            self._record,
            self._no_updates or changed.checkpoint.no_updates,
            is_own=remote is None or remote.owner_id == self._server.user_id,
            reads_jobs=self._reads_jobs,
            declaration=self._declaration.digest(),
            now=self._setup.now(),
        )
        if found is None:
            return None
        self._warnings += filter(None, [found.warning])
        return found.why

    def may_go_on(self, planned: Planned, error: RefreshError) -> bool:
        """Whether another attempt may do what this one could not; remember what it must not try."""
        if isinstance(error, DriftError | LostError):
            return True
        if not isinstance(planned.plan, UpdateTables):
            return False
        before = planned.base.checkpoint and planned.base.checkpoint.no_updates
        if isinstance(error, NoUpdatesError) and error.lacks_right and planned.base.remote:
            self._is_refused_as_another_users = planned.base.remote.owner_id != self._server.user_id
        self._no_updates = NoUpdates(
            why=str(error),
            # A job may fail for a passing reason, but not at two changes that follow each other.
            is_final=isinstance(error, NoUpdatesError) or before is not None,
            since=self._setup.now(),
            declaration=self._declaration.digest(),
            version=self._server.tsc.version,
        )
        return True

    def _metadata(
        self, desired: Mapping[str, TableContent], base: Base
    ) -> tuple[Declared, Merge | None]:
        """The declared metadata, and what becomes of those on the server."""
        declaration, setup = self._declaration, self._setup
        declared = Declared(
            declaration,
            desired,
            record=base.checkpoint if base.remote else None,
            models=self._builder.models,
            inherited=setup.inherited,
            stored=Written(setup.written),
            link=setup.link,
            accepts=Accept.METADATA in self._options.accept,
        )
        found, wanted = None, declared.about(certified=True)
        says = any(map(is_about, [*wanted, *declared.past]))
        if says and not self._options.offline and not not_ours(declaration, base, self._options):
            about = AboutOnServer(self._server, base.remote, wanted, declared.past)
            self._teller, found = partial(tell, about, declared), about.found
        return declared, declared.merged(base.metadata, found, is_edited=base.is_edited)

    def _differences(self, desired: Mapping[str, TableContent], base: Base) -> Sequence[str]:
        """In what the tables of a data source that is taken over differ from ours."""
        declaration = self._declaration
        if base.remote is None or base.is_ours or not_ours(declaration, base, self._options):
            return ()
        hyper, columns = self._setup.hyper, {name: e.columns for name, e in desired.items()}
        return layout_differences(self._server, base.remote, hyper, declaration, columns)

    def _by_size(
        self, changed: Changed, desired: Mapping[str, TableContent]
    ) -> tuple[NoChange | UpdateTables | Publish, Sequence[Delta]]:
        """Build an update, in several parts if it is too large and may be split, and decide."""
        possible = self._site.payload_limit if self._site else LARGEST_PAYLOAD
        limit = min(self._declaration.payload_limit or possible, possible)
        pieces: Sequence[Delta] = ()
        with phase(self._seconds, "build"):
            delta = self._builder.delta(changed.tables, desired, changed.checkpoint)
            if self._declaration.on_oversize == "split" and delta.extract.size > limit:
                pieces = self._builder.split(delta, limit)
        plan = by_size(self._declaration, changed, delta, limit=limit, pieces=len(pieces))
        is_sent = isinstance(plan, UpdateTables)
        remove([*([delta] if pieces or not is_sent else ()), *(() if is_sent else pieces)])
        return plan, (pieces or [delta]) if is_sent else ()

    def rehearse(self, planned: Planned) -> Report:
        """Report what would be done; the files of an update were built to measure it."""
        if isinstance(planned.plan, Publish):
            # Building the file would check the rows, but a dry run does not build it.
            self._builder.check(planned.desired)
        if not planned.deltas:
            return self._ended(planned.report)
        remove(planned.deltas)
        extract, tables = total(planned.deltas), counts(planned.deltas)
        return self._ended(replace(planned.report, extract=extract, tables=tables))

    def deliver(self, planned: Planned) -> Sent:
        """Carry out the decision.

        Raises:
            RefusedError: it was to do nothing, or the server refused.
            DriftError: another user changed the data source meanwhile.
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        if isinstance(planned.plan, Refuse):
            # What another run has published since is in no record that this one has read.
            self._sender.claim.check_fence()
            raise RefusedError(*planned.plan.refusals)
        self._moves |= planned.report.moves
        self._warnings += planned.report.warnings
        if planned.merged:
            self._warnings += planned.merged.warnings
        delivery = Delivery(
            content=self._builder,
            base=planned.base,
            sender=self._sender,
            reconciler=self._reconciler,
            kept=self._setup.kept,
            now=self._setup.now,
            seconds=self._seconds,
            declared=planned.declared,
            merged=planned.merged,
        )
        # They may be older than the newest ones.
        with readable(self._setup.hyper, self._declaration, self._builder.models):
            sent = delivery.deliver(planned.plan, planned.deltas, planned.desired)
        self._warnings += sent.warnings
        return sent

    def reconcile(self, sent: Sent) -> Reconciliation | None:
        """Compare the published data with the models, unless that was done; return the result.

        If an earlier refresh could not look, this one tries again, even if it has sent nothing.
        """
        if sent.target is None or not self._declaration.reconcile or not sent.target.unreconciled:
            return None
        with phase(self._seconds, "compare"):
            found = self._reconciler.compare(sent.target, sent.remote)
        if found.skipped:
            self._setup.log.warning("Not reconciled with the models: %s", found.skipped)
        return found

    def tell(self, sent: Sent, found: Reconciliation | None) -> Sent:
        """Make the server say of the data source what is declared."""
        if self._teller is None or sent.target is None:
            return sent
        is_known = not (found.skipped if found else sent.target.unreconciled)
        equal = not (found and found.problem) if is_known else None
        with phase(self._seconds, "about"):
            sent = self._teller(sent, sent.target, equal=equal)
        for text in sent.problems:
            self._setup.log.warning("%s", text)
        return sent

    def _held(self, planned: Planned, sent: Sent) -> Held | None:
        """The metadata on the server, if they are known to be as they were read last."""
        metadata = planned.base.metadata
        if isinstance(planned.plan, Publish):
            metadata = sent.metadata
        is_settled = not (sent.distrust or sent.warnings)
        is_settled = is_settled and not (planned.merged and conflict_phrases(planned.merged))
        if metadata is None or not is_settled:
            return None
        return Held(digest=metadata.digest, source=metadata.source)

    def record(self, planned: Planned, sent: Sent, found: Reconciliation | None) -> Checkpoint:
        """Close the claim with the checkpoint that was reached."""
        target = sent.target
        if target is None or self._claim is None:
            raise ValueError("a refresh ends with a checkpoint")
        known: dict[str, object] = {"distrust": sent.distrust}
        # What was adopted is seen to have been kept by now, or was told to have not; and the same
        # goes for its owner.
        known |= {"adopted": None, "owner": None, "held": self._held(planned, sent)}
        if self._no_updates:
            known["no_updates"] = self._no_updates
        if self._is_refused_as_another_users:
            self._record.learn(refused_others={self._server.user_id: self._setup.now()})
        if found and found.problem:
            # No update may build on it until it is equal.
            known["distrust"] = Distrust(Doubt.DIFFERS, found.problem)
        elif target.unreconciled and not self._declaration.reconcile:
            known["unreconciled"] = "reconcile: never"
        elif found:
            known["unreconciled"] = found.skipped
            known["compared_at"] = None if found.skipped else self._setup.now()
        checkpoint = completed(target, sent.remote, **known)
        self._claim.close(checkpoint)
        return checkpoint

    def report(
        self, planned: Planned, sent: Sent, found: Reconciliation | None, checkpoint: Checkpoint
    ) -> Report:
        """Report what was done, in all attempts."""
        warnings = [*self._warnings, *([str(checkpoint.distrust)] if checkpoint.distrust else ())]
        done = replace(
            planned.report,
            extract=sent.extract,
            tables=counts(planned.deltas),
            reconciliation=found,
            checkpoint=checkpoint,
            remote=sent.remote,
            uploaded=tuple(self._sender.uploaded),
            warnings=tuple(dict.fromkeys(warnings)),
            job_id=sent.intent.job_id if sent.intent else None,
            moves=self._moves,
            problems=sent.problems,
            merged=sent.merged or planned.merged,
        )
        return self._ended(done)

    def build(self) -> Report:
        """Only build the file."""
        builder, accept = self._builder, self._options.accept
        with phase(self._seconds, "build"):
            desired = builder.desired(None)
            # Nothing is replaced here, so no table can shrink, and only guard.min_rows counts.
            guards = guard_problems(self._declaration, desired, {})
            guards = [] if Accept.SHRINK in accept else guards
            checks = check_problems(desired, {}, self._setup.rejected())
            checks = [] if Accept.CHECKS in accept else checks
            if problems := checks + guards:
                raise RefusedError(*problems)
            extract = builder.file(desired)
        return self._ended(Report(plan=None, extract=extract))

    def _ended(self, report: Report) -> Report:
        self._seconds["total"] = round(time.monotonic() - self._started, 3)
        report = replace(report, seconds=self._seconds)
        report = replace(report, summary=summary(report, self._declaration, self._options))
        self._setup.log.info("%s", report.summary, extra={"closes": "refresh"})
        return report


@contextmanager
def _opened(setup: Setup, options: Options) -> Generator[_Phases]:
    """Claim the data source, read its history, open its models and a session, in this order."""
    claim, site, history = None, None, read_history([])
    with ExitStack() as stack:
        # A look neither waits for a running refresh nor leaves a trace in the journal.
        if options.sends:
            alone = claimed(
                setup.journal,
                what=setup.declaration.key,
                timeout=setup.timeouts.claim,
                sleep=setup.sleep,
                log=setup.log,
            )
            claim = stack.enter_context(alone)
            history = claim.history
        elif not options.build_only:
            # Before the models, as a refresh does: a dry run tells of the same problem first.
            history = read_history(setup.journal.records())
        builder = (
            # An audit compares what is published with its own versions, whatever came since.
            setup.builder({}) if options.audit else stack.enter_context(newest_models(setup))
        )
        if not options.build_only and not options.offline:
            site = stack.enter_context(setup.server())
        yield _Phases(setup, options, builder, site, claim, history)

"""Refresh one data source: claim, recover, plan, deliver, reconcile, record.

A refresh may die at any moment, even between a request and its answer. Then it is unknown whether
the request took effect, or will take effect later. In spite of this, the rules below make the
published rows equal to the models. The rules assume one promise of the server: it carries out a
request completely or not at all.

* A refresh claims its data source, and no other refresh may send while the claim holds. The claim
  of a dead process no longer counts. If a paused process continues later, it finds that another
  refresh has overtaken it: see `claim`.
* Before each request that publishes or updates rows, `send` stores an intent in the journal. The
  intent describes the request, and the checkpoint (the record of the published data source) that
  the request leads to. `send` adds the id of the server's job as soon as the server names the job.
  It adds the outcome as soon as it knows the outcome. Renames, tags and other properties need no
  intent: the next refresh compares them with the declaration, and sets them again.
* The next refresh opens the models and a session, and then calls `recover`, which finds the outcome
  of each intent without an outcome. (While a person holds the data source at an earlier version,
  only a rollback calls `recover`.) `recover` asks for the job. If the id of the job was lost with
  the answer, `recover` looks for the rows, and for jobs of this data source. It waits until the job
  has ended, or until the time limits of jobs have passed. So no earlier request can take effect
  after a later request. A user who may not see jobs gets an error until the limits have passed.
  `recover` never repeats a request: the next plan compares the models with the rows that are
  published by then.
* If an outcome stays unknown, or another user may have changed the data source, the journal records
  a `Distrust` with the reason. No update builds on distrusted rows. Instead, this refresh or the
  next refresh publishes a whole file, which replaces all rows, no matter which requests took
  effect.
"""

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from tableau_pipeline.core.checkpoint import Accepted, Checkpoint, NoUpdates, ServerTds
from tableau_pipeline.core.hold import Hold, check_not_held, end_hold, hold_of, put_hold
from tableau_pipeline.core.journal import Recovered
from tableau_pipeline.errors import DriftError, NoUpdatesError, RefreshError, RefusedError
from tableau_pipeline.extracts.delta import remove
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.metadata.merge import conflict_phrases
from tableau_pipeline.outcome import Accept, Code, Distrust, Doubt, Refusal
from tableau_pipeline.publishing.jobs import Jobs
from tableau_pipeline.refresh.claim import HeldClaim, claimed
from tableau_pipeline.refresh.decide import Options, Publish, Refuse, UpdateTables, check_problems
from tableau_pipeline.refresh.declared_metadata import PropertiesSet
from tableau_pipeline.refresh.deliver import Delivery
from tableau_pipeline.refresh.entitlements import entitled
from tableau_pipeline.refresh.guards import size_problems
from tableau_pipeline.refresh.limits import within_limits
from tableau_pipeline.refresh.planning import Planned, Planner
from tableau_pipeline.refresh.reconcile import Reconciliation, ReconciliationError
from tableau_pipeline.refresh.recover import recover
from tableau_pipeline.refresh.report import Audited, Built, Done, Refreshed
from tableau_pipeline.refresh.send import (
    FailedRequestError,
    LostOutcomeError,
    Sender,
    Sent,
    completed,
)
from tableau_pipeline.refresh.setup import Setup, newest_models
from tableau_pipeline.refresh.timing import phase

# The log line of each decision.
DECISION = "Decision: %s. Reason: %s"
_DEFAULT_OPTIONS = Options()
# A rollback accepts these refusals by itself: it removes newer rows and columns on purpose, and an
# earlier refresh has already published its versions.
_ROLLBACK_ACCEPTS = frozenset(
    {Accept.SHRINK, Accept.CHANGE, Accept.SCHEMA, Accept.CHECKS, Accept.METADATA}
)
# The remedies for refusals that a rollback cannot accept.
_BEFORE_A_ROLLBACK = {
    Accept.TAKEOVER: "If this deployment is to take it over, refresh with accept: [takeover] "
    "first, then roll back",
    Accept.OVERWRITE: "Take that work out of it; or refresh with full: true and "
    "accept: [overwrite] first, which saves the data source, then roll back",
    Accept.FILTER: "A rollback sends no rows without a filter: put it back, or let this user "
    "download the data source, then roll back",
}


def plan(setup: Setup, options: Options = _DEFAULT_OPTIONS, *, offline: bool = False) -> Planned:
    """Return what a refresh would do now. This function does not wait, and changes nothing.

    Args:
        offline: whether to ask no server, and plan as if the server matched our records.

    Raises:
        RefusedError: a model is missing, or has rows that cannot be published. Any other refusal is
            the decision of the returned plan.
        RefreshError: the server failed, or did not answer.
    """
    with ExitStack() as stack:
        # Read the history before the models, like a refresh, so that both report the same problem
        # first.
        history = setup.journal.history()
        builder = stack.enter_context(newest_models(setup))
        site = None if offline else stack.enter_context(setup.server())
        # Read the metadata from the server even if they seem unchanged there, because the plan
        # lists every change that the refresh would make to them.
        planner = Planner(
            setup, _effective_options(setup, options), builder, site, {}, reads_all=True
        )
        started = time.monotonic()
        with phase(planner.seconds, "recover"):
            recovered = recover(history, None, planner.effects if site else None)
        planned = _within_limits(setup, planner, recovered)
        _log_decision(setup, planned)
        if isinstance(planned.plan, Publish):
            # Check the rows here: a refresh checks them while it builds the file, but a plan builds
            # no file.
            planned.builder.check(planned.desired)
        # Remove the files of the update: they were built only to measure its size.
        remove(planned.deltas)
        planned = replace(planned, seconds=_with_total(planner.seconds, started))
        _log_summary(setup, planned)
        return planned


def refresh(setup: Setup, options: Options = _DEFAULT_OPTIONS) -> Refreshed:
    """Make the published data source equal to its models.

    Raises:
        RefusedError: the refresh would be wrong or unsafe. Nothing was changed.
        HeldError: a person holds the data source. Nothing was sent.
        RefreshError: the refresh failed. The next run finds out what the server has done.
    """
    with _claimed_phases(setup, options) as phases:
        return _refresh(phases)


def rollback(setup: Setup, hold: Hold, *, dry_run: bool = False) -> Refreshed | Planned:
    """Publish again what an earlier refresh published, and hold the data source at this version.

    A rollback is a refresh with earlier versions of the models, which accepts the loss of rows and
    columns. Until a person ends the hold, refreshes change nothing. Without the hold, the next
    refresh would publish the newest rows again. So the hold stays even if the outcome is unknown
    after an error.

    Args:
        hold: the hold to put on the data source, with the number of the earlier refresh.
        dry_run: whether only to plan the rollback.

    Raises:
        RefusedError: no record of the earlier refresh is left, or its rows are gone, or the tables
            are declared differently now. Nothing was changed, and the former hold is restored.
        RefreshError: see `refresh`.
    """
    place, key = setup.journal.place, setup.journal.key
    to = _version(setup, hold.version or 0)
    options = Options(accept=_ROLLBACK_ACCEPTS, by=hold.by, to=to)
    if dry_run:
        return plan(setup, options)
    with _claimed_phases(setup, options) as phases:
        before = hold_of(place, key)
        put_hold(place, key, hold)
        try:
            return _refresh(phases)
        except RefusedError:
            # Keep the hold in two cases. A later rollback may have overtaken this rollback, and
            # have put the hold. Or the first attempt may have changed something before the second
            # attempt was refused.
            if not (phases.claim.may_be_overtaken() or phases.sender.done):
                if before:
                    put_hold(place, key, before)
                else:
                    end_hold(place, key)
            raise


def _version(setup: Setup, number: int) -> Checkpoint:
    name = setup.declaration.name
    found = next((c for c in setup.journal.checkpoints() if c.refresh == number), None)
    if found is None:
        raise RefusedError(
            f'No record is left of a refresh {number} of "{name}". Choose a version that '
            "`rollback --list` shows",
            code=Code.NO_VERSION,
        )
    if found.declaration != setup.declaration.digest():
        raise RefusedError(
            f'The tables of "{name}" were declared differently at version {number}: deploy that '
            "declaration to go back to it",
            code=Code.NO_VERSION,
        )
    return found


def _refresh(phases: "_Phases") -> Refreshed:
    """Carry out a plan; if the data source changes meanwhile or an update fails, plan once more."""
    setup = phases.setup
    recovered = phases.recover()
    for is_last in (False, True):
        planned = phases.plan(recovered)
        try:
            sent, extract = phases.deliver(planned)
        except (DriftError, NoUpdatesError, FailedRequestError) as error:
            # The data source may have changed, or the server may accept no updates. Observe and
            # plan once more.
            if is_last or not phases.may_go_on(planned, error):
                raise
            setup.log.warning("%s", error)
            # Do not recover again, because `send` has recorded the outcomes of its own intents.
            recovered = phases.claim.history.after_intents
            continue
        if sent.distrust is None or is_last:
            break
        setup.log.warning("%s. Everything is published again", sent.distrust)
        # Another user may have changed rows during our request: replace all rows by a whole file.
        recovered = phases.claim.history.after_intents.distrusted(sent.distrust)
    reconciliation, properties = None, None
    try:
        reconciliation = phases.reconcile(sent)
        properties = phases.set_properties(planned, sent, reconciliation)
    finally:
        # Record even after an error, so that the next refresh knows what this refresh has sent.
        checkpoint = phases.record(planned, sent, reconciliation, properties)
    if reconciliation and reconciliation.problem:
        raise ReconciliationError(reconciliation)
    return phases.report(planned, sent, extract, reconciliation, properties, checkpoint)


def audit(setup: Setup) -> Audited:
    """Compare the published rows with our record of the last refresh, if the record is reliable.

    Raises:
        RefreshError: the server failed, or did not answer.
    """
    history = setup.journal.history()
    # Open no models: an audit compares the published rows with the versions in our records.
    builder = setup.builder({})
    with setup.server() as site:
        planner = Planner(setup, _DEFAULT_OPTIONS, builder, site, {}, reads_all=True)
        recovered = recover(history, None, planner.effects)
        base = planner.observe(recovered, looks_only=True)
        reconciliation = None
        if base.remote and base.checkpoint and not base.distrust:
            reconciliation = planner.reconciler.audit(base.checkpoint, base.remote)
    return Audited(base, recovered.record, reconciliation)


def build(setup: Setup, options: Options = _DEFAULT_OPTIONS) -> Built:
    """Build the full file of the newest models, and send nothing.

    Raises:
        RefusedError: a model is missing, or has rows that cannot be published.
    """
    seconds, accept = dict[str, float](), options.accept
    with newest_models(setup) as builder, phase(seconds, "build"):
        started = time.monotonic()
        desired = builder.desired(None)
        # A build replaces nothing, so no table can shrink. Only guard.min_rows applies.
        guards = size_problems(setup.declaration, desired, {}, accept=accept)
        checks = check_problems(desired, {}, setup.rejected())
        checks = [] if Accept.CHECKS in accept else checks
        if problems := checks + guards:
            raise RefusedError(*problems)
        extract = builder.file(desired)
    built = Built(setup.declaration, extract, _with_total(seconds, started))
    _log_summary(setup, built)
    return built


def _within_limits(setup: Setup, planner: Planner, recovered: Recovered) -> Planned:
    declaration, planned = setup.declaration, planner.plan(recovered)
    with planned.builder.reading():
        planned = within_limits(
            planned, planner.options, declaration=declaration, digest=setup.declaration_digest
        )
        planned = entitled(planned, declaration.entitlements, planner.site)
    return _advised(planned, planner.options)


def _advised(planned: Planned, options: Options) -> Planned:
    """Return a plan; if it refuses a rollback, replace the remedies that a rollback cannot use."""
    if options.to and isinstance(planned.plan, Refuse):
        return replace(planned, plan=Refuse((*map(_of_a_rollback, planned.plan.refusals),)))
    return planned


def _of_a_rollback(refusal: Refusal) -> Refusal:
    """Return a refusal with a remedy for rollbacks, in which a user cannot `accept` a refusal."""
    if (remedy := refusal.accept and _BEFORE_A_ROLLBACK.get(refusal.accept)) is None:
        return refusal
    return replace(refusal, accept=None, remedy=remedy)


def _effective_options(setup: Setup, options: Options) -> Options:
    """Add the options of the deployment, the approval and the saved plan; return all options."""
    takeover = {Accept.TAKEOVER} if setup.takeover else set()
    approved = options.approval.accept if options.approval else ()
    options = replace(options, accept=options.accept | takeover | {*approved})
    if saved := options.saved:
        return replace(
            options,
            full=saved.full,
            metadata_only=saved.metadata_only,
            accept=options.accept | {*saved.accept},
        )
    return options


def _accepted(setup: Setup, options: Options) -> Accepted | None:
    """Return the record of what is accepted, and by whom; None if nothing is accepted."""
    if options.to:
        # Do not record what every rollback accepts by itself: no user has accepted it.
        return None
    by, approval = options.by or setup.journal.owner.label, options.approval
    approved = dict.fromkeys(approval.accept, approval.by) if approval else {}
    planned = options.saved.accept if options.saved else ()
    what = approved | dict.fromkeys(sorted({*options.accept, *planned}), by)
    if not (what or approval):
        return None
    return Accepted(what=what, approved_by=approval.by if approval else None)


def _with_total(seconds: dict[str, float], started: float) -> dict[str, float]:
    return {**seconds, "total": round(time.monotonic() - started, 3)}


def _log_decision(setup: Setup, planned: Planned) -> None:
    if not isinstance(planned.plan, Refuse):
        # Log no refusal here, because the error of the refusal states the reason.
        setup.log.info(DECISION, planned.decision, planned.reason)


def _log_summary(setup: Setup, done: Done) -> None:
    setup.log.info("%s", done.summary, extra={"closes": "refresh"})


@dataclass
class _Phases:
    """The phases of a refresh that has claimed its data source.

    Attributes:
        moves: phrases that say how the refresh changed the name and the project, over all its
            attempts; the keys are "rename" and "move".
        warnings: the warnings of all attempts.
        refused_others: whether the server refused an update because another user owns the data
            source.
        accepted: the record of what this refresh accepts, and by whom; None if it accepts nothing.
    """

    setup: Setup
    claim: HeldClaim
    planner: Planner
    sender: Sender
    started: float
    moves: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    refused_others: bool = False
    accepted: Accepted | None = None

    def recover(self) -> Recovered:
        """Find out the outcomes of requests of earlier refreshes."""
        with phase(self.planner.seconds, "recover"):
            return recover(self.claim.history, self.sender, self.planner.effects)

    def plan(self, recovered: Recovered) -> Planned:
        """Observe the data source, read the models, and decide."""
        doubt = recovered.distrust
        if self.sender.accepted and doubt and doubt.code is not Doubt.FAILED:
            # Check no limits again: the first attempt was within the limits, and this attempt only
            # repairs what the first attempt left.
            planned = _advised(self.planner.plan(recovered), self.planner.options)
        else:
            planned = _within_limits(self.setup, self.planner, recovered)
        self.sender.late = planned.base.late
        _log_decision(self.setup, planned)
        return planned

    def may_go_on(self, planned: Planned, error: RefreshError) -> bool:
        """Return whether a second attempt may succeed; note if it must not send updates."""
        if isinstance(error, DriftError | LostOutcomeError):
            return True
        if not isinstance(planned.plan, UpdateTables):
            return False
        base, server = planned.base, self.planner.server
        before = base.checkpoint and base.checkpoint.no_updates
        if isinstance(error, NoUpdatesError) and error.lacks_right and base.remote:
            self.refused_others = base.remote.owner_id != server.user_id
        self.planner.no_updates = NoUpdates(
            why=str(error),
            # One failed job may have a temporary cause. Two failed jobs in a row count as final.
            is_final=isinstance(error, NoUpdatesError) or before is not None,
            since=self.setup.now(),
            declaration=self.setup.declaration.digest(),
            version=server.tsc.version,
        )
        return True

    def deliver(self, planned: Planned) -> tuple[Sent, Extract | None]:
        """Carry out the decision; see `Delivery.deliver`.

        Raises:
            RefusedError: the decision was to refuse, or the server refused.
        """
        setup, planner = self.setup, self.planner
        if isinstance(planned.plan, Refuse):
            raise RefusedError(*planned.plan.refusals)
        self.moves |= planned.moves
        self.warnings += planned.warnings
        if planned.merged:
            self.warnings += planned.merged.warnings
        delivery = Delivery(
            declaration=setup.declaration,
            sender=self.sender,
            backups=setup.backups,
            now=setup.now,
            seconds=planner.seconds,
        )
        # Explain read errors here, too: `newest_models` explains them only for the newest versions,
        # and with metadata_only, the planned versions may be older.
        with planned.builder.reading():
            sent, extract = delivery.deliver(planned)
            sent = self._prove(sent)
            if sent.distrust is None:
                sent = self._prove(delivery.describe(planned, sent, extract))
        self.warnings += sent.warnings
        return sent, extract

    def _prove(self, sent: Sent) -> Sent:
        """Turn distrust into a warning if the published rows equal the sent rows.

        Equal rows prove that no other user has changed them. But the distrust stays if the metadata
        in the sent file were not found on the server: the publish may have changed another data
        source.
        """
        if not (sent.intent and sent.distrust and sent.reached):
            return sent
        if sent.merged and sent.intent.is_deduced:
            return sent
        comparison = self.planner.reconciler.compare_rows(sent.reached, sent.remote)
        if comparison.problem or comparison.skipped:
            return sent
        return replace(sent, distrust=None).warned(str(sent.distrust))

    def reconcile(self, sent: Sent) -> Reconciliation | None:
        """Compare the published data with the models; return None if no comparison is needed.

        If an earlier refresh could not compare the data, compare now, even if nothing was sent.
        """
        reached = sent.reached
        if reached is None or not self.setup.declaration.reconcile or not reached.unreconciled:
            return None
        with phase(self.planner.seconds, "compare"):
            reconciliation = self.planner.reconciler.compare(reached, sent.remote)
        if reconciliation.skipped:
            self.setup.log.warning("Not reconciled with the models: %s", reconciliation.skipped)
        return reconciliation

    def set_properties(
        self, planned: Planned, sent: Sent, reconciliation: Reconciliation | None
    ) -> PropertiesSet | None:
        """Set the declared properties; return None if no property is, or was, declared."""
        if sent.reached is None:
            return None
        is_known = not (reconciliation.skipped if reconciliation else sent.reached.unreconciled)
        equal = not (reconciliation and reconciliation.problem) if is_known else None
        is_new = bool(sent.intent and sent.intent.brings_metadata)
        with phase(self.planner.seconds, "about"):
            properties = planned.metadata.set_properties(
                sent.reached,
                sent.remote,
                equal=equal,
                is_new=is_new,
                in_place=self.sender.in_place,
            )
        for text in properties.problems if properties else ():
            self.setup.log.warning("%s", text)
        return properties

    def record(
        self,
        planned: Planned,
        sent: Sent,
        reconciliation: Reconciliation | None,
        properties: PropertiesSet | None,
    ) -> Checkpoint:
        """Store the checkpoint with the findings of this refresh, and end the claim."""
        if sent.reached is None:
            raise ValueError("a refresh ends with a checkpoint")
        reached, declaration, now = sent.reached, self.setup.declaration, self.setup.now
        distrust = sent.distrust or (properties.distrust if properties else None)
        fields: dict[str, object] = {
            "distrust": distrust,
            # By now, this refresh has confirmed the metadata of a data source that we took over,
            # and has restored the owner, or else has warned the user: clear both fields.
            "adopted": None,
            "owner": None,
            "held": self._known_metadata(planned, sent, distrust),
            "accepted": self.accepted,
        }
        if properties:
            fields["written"] = properties.written
        if self.planner.no_updates:
            fields["no_updates"] = self.planner.no_updates
        if self.refused_others:
            self.planner.record.learn(refused_others={self.planner.server.user_id: now()})
        if reconciliation and reconciliation.problem:
            # No update may build on the published rows until they equal the models.
            fields["distrust"] = Distrust(Doubt.DIFFERS, reconciliation.problem)
        elif reached.unreconciled and not declaration.reconcile:
            fields["unreconciled"] = "reconcile: never"
        elif reconciliation:
            fields["unreconciled"] = reconciliation.skipped
            fields["compared_at"] = None if reconciliation.skipped else now()
        remote = properties.remote if properties else sent.remote
        checkpoint = completed(reached, remote, **fields)
        self.claim.close(checkpoint)
        return checkpoint

    def _known_metadata(
        self, planned: Planned, sent: Sent, distrust: Distrust | None
    ) -> ServerTds | None:
        """Return a record of the server's metadata; None if the next refresh must read them."""
        metadata = planned.base.metadata
        if isinstance(planned.plan, Publish):
            metadata = sent.metadata
        is_settled = not (distrust or sent.warnings)
        is_settled = is_settled and not (planned.merged and conflict_phrases(planned.merged))
        if metadata is None or not is_settled:
            return None
        return ServerTds(digest=metadata.digest, source=metadata.source)

    def report(
        self,
        planned: Planned,
        sent: Sent,
        extract: Extract | None,
        reconciliation: Reconciliation | None,
        properties: PropertiesSet | None,
        checkpoint: Checkpoint,
    ) -> Refreshed:
        """Return the result of all attempts, and log its summary."""
        distrust = [str(checkpoint.distrust)] if checkpoint.distrust else []
        warnings = [*self.warnings, *self.planner.warnings, *distrust]
        done = Refreshed(
            planned=planned,
            checkpoint=checkpoint,
            remote=properties.remote if properties else sent.remote,
            extract=extract,
            reconciliation=reconciliation,
            uploaded=tuple(self.sender.uploaded),
            moves=self.moves,
            merged=sent.merged or planned.merged,
            warnings=tuple(dict.fromkeys(warnings)),
            problems=properties.problems if properties else (),
            job_id=sent.intent.job_id if sent.intent else None,
            requests=self.planner.server.budget.sent,
            seconds=_with_total(self.planner.seconds, self.started),
        )
        _log_summary(self.setup, done)
        return done


@contextmanager
def _claimed_phases(setup: Setup, options: Options) -> Generator[_Phases]:
    """Claim the data source, then open its models and a session; yield the phases."""
    claiming = claimed(
        setup.journal,
        what=setup.declaration.key,
        timeout=setup.timeouts.claim,
        sleep=setup.sleep,
        log=setup.log,
    )
    with ExitStack() as stack:
        claim = stack.enter_context(claiming)
        if options.to is None:
            # Check for a hold only now: before the claim, a rollback could still add a hold.
            check_not_held(setup.journal)
        builder = stack.enter_context(newest_models(setup))
        site = stack.enter_context(setup.server())
        planner = Planner(setup, _effective_options(setup, options), builder, site, {})
        jobs = Jobs(site, setup.timeouts, setup.sleep, setup.log)
        sender = Sender(claim, jobs, planner.tags, planner.record, planner.effects, planner.seconds)
        planner.reads_jobs = sender.reads_jobs
        # Measure the time only from here, after the waits for the claim, the models and the
        # session.
        started, accepted = time.monotonic(), _accepted(setup, options)
        try:
            yield _Phases(setup, claim, planner, sender, started=started, accepted=accepted)
        except RefusedError as error:
            # If another refresh has overtaken this refresh, the changes of the other refresh may
            # have caused the refusal. Then `may_be_overtaken` raises an error that reports this
            # instead.
            claim.may_be_overtaken()
            if not sender.done:
                raise
            done = "; ".join(sender.done)
            raise RefreshError(f"{done}. After that, the refresh was refused: {error}") from error

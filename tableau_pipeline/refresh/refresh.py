"""Refresh one data source: claim, recover, plan, deliver, reconcile, record.

A refresh may die at any moment, also between a request and its answer, when nobody knows whether
the server has received it. The server carries out a request completely or not at all, and these
rules do the rest:

* A claim keeps all other refreshes of the data source out. That of a process that has died no
  longer counts, and a process that wakes up later finds that it was overtaken: see `claim`.
* Before each request that changes the data source, `send` stores an intent in the journal: what is
  to be sent, and the checkpoint that it leads to. It adds the id of the server's job as soon as the
  server has named it, and the outcome once that is known.
* The next refresh begins with `recover`, which settles each intent without an outcome. It asks for
  the job or, if its id was lost with the answer, looks for the rows and for jobs of this data
  source. While the request may still take effect, it waits, or ends with an error. It never repeats
  a request: the plan that follows compares the models with what is published by then.
* Where an outcome stays unknown, and where another user may have changed the data source, no update
  builds on what is published: `Distrust` says why, in records, too. The next refresh replaces
  everything by a whole file, for which it does not matter what had taken effect.
"""

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from tableau_pipeline.core.checkpoint import Checkpoint, Held, NoUpdates
from tableau_pipeline.core.journal import Recovered, read_history
from tableau_pipeline.errors import DriftError, NoUpdatesError, RefreshError, RefusedError
from tableau_pipeline.extracts.checks import readable
from tableau_pipeline.extracts.delta import remove
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.metadata.merge import conflict_phrases
from tableau_pipeline.outcome import Accept, Distrust, Doubt
from tableau_pipeline.publishing.jobs import Jobs
from tableau_pipeline.refresh.claim import HeldClaim, claimed
from tableau_pipeline.refresh.decide import (
    Options,
    Publish,
    Refuse,
    UpdateTables,
    check_problems,
    guard_problems,
)
from tableau_pipeline.refresh.declared_metadata import PropertiesSet
from tableau_pipeline.refresh.deliver import Delivery
from tableau_pipeline.refresh.phase import phase
from tableau_pipeline.refresh.planning import Planned, Planner
from tableau_pipeline.refresh.reconcile import Reconciliation, ReconciliationError
from tableau_pipeline.refresh.recover import recover
from tableau_pipeline.refresh.report import Audited, Built, Done, Refreshed
from tableau_pipeline.refresh.send import LostError, Sender, Sent, SentError, completed
from tableau_pipeline.refresh.setup import Setup, newest_models

# What is logged of each decision, with its reason.
DECISION = "Decision: %s. Reason: %s"
_AS_USUAL = Options()


def plan(setup: Setup, options: Options = _AS_USUAL, *, offline: bool = False) -> Planned:
    """Decide what a refresh would do, as it would; it neither waits nor leaves a trace.

    Args:
        offline: ask no server, but plan as if it held what our records tell.

    Raises:
        RefusedError: a model is missing, or has rows that cannot be published. That a refresh would
            be refused for other reasons is a decision, too.
        RefreshError: the server failed, or did not answer.
    """
    with ExitStack() as stack:
        # Before the models, as a refresh does: it tells of the same problem first.
        history = read_history(setup.journal.records())
        builder = stack.enter_context(newest_models(setup))
        site = None if offline else stack.enter_context(setup.server())
        # It tells what becomes of the metadata, so it reads them even if they are as they were.
        planner = Planner(setup, _settings(setup, options), builder, site, {}, reads_all=True)
        started = time.monotonic()
        with phase(planner.seconds, "recover"):
            past = recover(history, None, planner.effects if site else None)
        planned = planner.plan(past)
        _log(setup, planned)
        if isinstance(planned.plan, Publish):
            # Building the file would check the rows, but nothing is built.
            planned.builder.check(planned.desired)
        # The files of an update were built to measure it.
        remove(planned.deltas)
        planned = replace(planned, seconds=_with_total(planner.seconds, started))
        _close(setup, planned)
        return planned


def refresh(setup: Setup, options: Options = _AS_USUAL) -> Refreshed:
    """Make the published data source equal to its models, or report why not.

    Raises:
        RefusedError: the refresh would be wrong or unsafe. Nothing was sent or overwritten, unless
            its first attempt was distrusted, and its second one refused.
        RefreshError: the refresh failed; the next run finds out what became of it.
    """
    with _claimed(setup, options) as phases:
        past = phases.recover()
        for is_last in (False, True):
            planned = phases.plan(past)
            try:
                sent, extract = phases.deliver(planned)
            except (DriftError, NoUpdatesError, SentError) as error:
                # The server may hold something else by now, or takes no updates: a second plan, and
                # the last one, goes by what it shows then.
                if is_last or not phases.may_go_on(planned, error):
                    raise
                setup.log.warning("%s", error)
                past = past.after(error.intent) if isinstance(error, SentError) else past
                continue
            if sent.distrust is None or is_last:
                break
            setup.log.warning("%s. Everything is published again", sent.distrust)
            # Another user may have changed rows while ours were sent: a whole file replaces them.
            past = (past.after(sent.intent) if sent.intent else past).distrusted(sent.distrust)
        found, properties = None, None
        try:
            found = phases.reconcile(sent)
            properties = phases.set_properties(planned, sent, found)
        finally:
            # Also if the comparison breaks off: the next refresh need not look for what was sent.
            checkpoint = phases.record(planned, sent, found, properties)
        if found and found.problem:
            raise ReconciliationError(found)
        return phases.report(planned, sent, extract, found, properties, checkpoint)


def audit(setup: Setup) -> Audited:
    """Compare the published rows with those that the last refresh left, if these are known.

    Raises:
        RefreshError: the server failed, or did not answer.
    """
    history = read_history(setup.journal.records())
    # What is published is compared with its own versions of the models, whatever came since.
    builder = setup.builder({})
    with setup.server() as site:
        planner = Planner(setup, _AS_USUAL, builder, site, {}, reads_all=True)
        past = recover(history, None, planner.effects)
        base = planner.observe(past, looks_only=True)
        found = None
        if base.remote and base.checkpoint and not base.distrust:
            found = planner.reconciler.audit(base.checkpoint, base.remote)
    return Audited(base, past.record, found)


def build(setup: Setup, options: Options = _AS_USUAL) -> Built:
    """Build the full file of the newest models, and send nothing.

    Raises:
        RefusedError: a model is missing, or has rows that cannot be published.
    """
    seconds, accept = dict[str, float](), options.accept
    with newest_models(setup) as builder, phase(seconds, "build"):
        started = time.monotonic()
        desired = builder.desired(None)
        # Nothing is replaced here, so no table can shrink, and only guard.min_rows counts.
        guards = guard_problems(setup.declaration, desired, {})
        guards = [] if Accept.SHRINK in accept else guards
        checks = check_problems(desired, {}, setup.rejected())
        checks = [] if Accept.CHECKS in accept else checks
        if problems := checks + guards:
            raise RefusedError(*problems)
        extract = builder.file(desired)
    built = Built(setup.declaration, extract, _with_total(seconds, started))
    _close(setup, built)
    return built


def _settings(setup: Setup, options: Options) -> Options:
    takeover = {Accept.TAKEOVER} if setup.takeover else set()
    return replace(options, accept=options.accept | takeover)


def _with_total(seconds: dict[str, float], started: float) -> dict[str, float]:
    return {**seconds, "total": round(time.monotonic() - started, 3)}


def _log(setup: Setup, planned: Planned) -> None:
    if not isinstance(planned.plan, Refuse):
        # The refusal itself says it.
        setup.log.info(DECISION, planned.decision, planned.reason)


def _close(setup: Setup, done: Done) -> None:
    setup.log.info("%s", done.summary, extra={"closes": "refresh"})


@dataclass
class _Phases:
    """The phases of a refresh that has claimed its data source.

    Attributes:
        moves: what became of its name and its project, by "rename" and "move", in every attempt.
        warnings: those of every attempt.
        refused_others: this user was refused an update, because another user owns the data source.
    """

    setup: Setup
    claim: HeldClaim
    planner: Planner
    sender: Sender
    started: float
    moves: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    refused_others: bool = False

    def recover(self) -> Recovered:
        """Find out what became of what earlier refreshes have sent."""
        with phase(self.planner.seconds, "recover"):
            return recover(self.claim.history, self.sender, self.planner.effects)

    def plan(self, past: Recovered) -> Planned:
        """Observe the data source, read the models, and decide."""
        planned = self.planner.plan(past)
        _log(self.setup, planned)
        return planned

    def may_go_on(self, planned: Planned, error: RefreshError) -> bool:
        """Whether another attempt may do what this one could not; remember what it must not try."""
        if isinstance(error, DriftError | LostError):
            return True
        if not isinstance(planned.plan, UpdateTables):
            return False
        base, server = planned.base, self.planner.server
        before = base.checkpoint and base.checkpoint.no_updates
        if isinstance(error, NoUpdatesError) and error.lacks_right and base.remote:
            self.refused_others = base.remote.owner_id != server.user_id
        self.planner.no_updates = NoUpdates(
            why=str(error),
            # A job may fail for a passing reason, but hardly twice in a row.
            is_final=isinstance(error, NoUpdatesError) or before is not None,
            since=self.setup.now(),
            declaration=self.setup.declaration.digest(),
            version=server.tsc.version,
        )
        return True

    def deliver(self, planned: Planned) -> tuple[Sent, Extract | None]:
        """Carry out the decision; see `Delivery.deliver`.

        Raises:
            RefusedError: it was to do nothing, or the server refused.
        """
        setup, planner = self.setup, self.planner
        if isinstance(planned.plan, Refuse):
            # A refresh that was overtaken refuses by old records: then that is the reason to give.
            self.claim.check_fence()
            raise RefusedError(*planned.plan.refusals)
        self.moves |= planned.moves
        self.warnings += planned.warnings
        if planned.merged:
            self.warnings += planned.merged.warnings
        delivery = Delivery(
            declaration=setup.declaration,
            sender=self.sender,
            reconciler=planner.reconciler,
            backups=setup.backups,
            now=setup.now,
            seconds=planner.seconds,
        )
        # With metadata_only, these are not the newest models, which were checked before.
        with readable(setup.hyper, setup.declaration, planned.builder.models):
            sent, extract = delivery.deliver(planned)
        self.warnings += sent.warnings
        return sent, extract

    def reconcile(self, sent: Sent) -> Reconciliation | None:
        """Compare the published data with the models, unless the last comparison still holds.

        If an earlier refresh could not compare them, this one tries again, even if it has sent
        nothing.
        """
        reached = sent.reached
        if reached is None or not self.setup.declaration.reconcile or not reached.unreconciled:
            return None
        with phase(self.planner.seconds, "compare"):
            found = self.planner.reconciler.compare(reached, sent.remote)
        if found.skipped:
            self.setup.log.warning("Not reconciled with the models: %s", found.skipped)
        return found

    def set_properties(
        self, planned: Planned, sent: Sent, found: Reconciliation | None
    ) -> PropertiesSet | None:
        """Set what is declared of the data source itself; None if nothing is, or was."""
        if sent.reached is None:
            return None
        is_known = not (found.skipped if found else sent.reached.unreconciled)
        equal = not (found and found.problem) if is_known else None
        is_new = bool(sent.intent and sent.intent.brings_metadata)
        with phase(self.planner.seconds, "about"):
            properties = planned.metadata.set_properties(
                sent.reached, sent.remote, equal=equal, is_new=is_new
            )
        for text in properties.problems if properties else ():
            self.setup.log.warning("%s", text)
        return properties

    def record(
        self,
        planned: Planned,
        sent: Sent,
        found: Reconciliation | None,
        properties: PropertiesSet | None,
    ) -> Checkpoint:
        """Close the claim with the checkpoint that was reached, and with what is known by now."""
        if sent.reached is None:
            raise ValueError("a refresh ends with a checkpoint")
        reached, declaration, now = sent.reached, self.setup.declaration, self.setup.now
        distrust = sent.distrust or (properties.distrust if properties else None)
        known: dict[str, object] = {
            "distrust": distrust,
            # Whether the adopted metadata and the owner were kept has been looked at by now.
            "adopted": None,
            "owner": None,
            "held": self._held(planned, sent, distrust),
        }
        if properties:
            known["written"] = properties.written
        if self.planner.no_updates:
            known["no_updates"] = self.planner.no_updates
        if self.refused_others:
            self.planner.record.learn(refused_others={self.planner.server.user_id: now()})
        if found and found.problem:
            # No update may build on it until it is equal.
            known["distrust"] = Distrust(Doubt.DIFFERS, found.problem)
        elif reached.unreconciled and not declaration.reconcile:
            known["unreconciled"] = "reconcile: never"
        elif found:
            known["unreconciled"] = found.skipped
            known["compared_at"] = None if found.skipped else now()
        remote = properties.remote if properties else sent.remote
        checkpoint = completed(reached, remote, **known)
        self.claim.close(checkpoint)
        return checkpoint

    def _held(self, planned: Planned, sent: Sent, distrust: Distrust | None) -> Held | None:
        """The metadata on the server, if they are known to be as they were read last."""
        metadata = planned.base.metadata
        if isinstance(planned.plan, Publish):
            metadata = sent.metadata
        is_settled = not (distrust or sent.warnings)
        is_settled = is_settled and not (planned.merged and conflict_phrases(planned.merged))
        if metadata is None or not is_settled:
            return None
        return Held(digest=metadata.digest, source=metadata.source)

    def report(
        self,
        planned: Planned,
        sent: Sent,
        extract: Extract | None,
        found: Reconciliation | None,
        properties: PropertiesSet | None,
        checkpoint: Checkpoint,
    ) -> Refreshed:
        """Report what was done, in all attempts."""
        distrust = [str(checkpoint.distrust)] if checkpoint.distrust else []
        warnings = [*self.warnings, *self.planner.warnings, *distrust]
        done = Refreshed(
            planned=planned,
            checkpoint=checkpoint,
            remote=properties.remote if properties else sent.remote,
            extract=extract,
            reconciliation=found,
            uploaded=tuple(self.sender.uploaded),
            moves=self.moves,
            merged=sent.merged or planned.merged,
            warnings=tuple(dict.fromkeys(warnings)),
            problems=properties.problems if properties else (),
            job_id=sent.intent.job_id if sent.intent else None,
            seconds=_with_total(self.planner.seconds, self.started),
        )
        _close(self.setup, done)
        return done


@contextmanager
def _claimed(setup: Setup, options: Options) -> Generator[_Phases]:
    """Claim the data source, then open its models and a session."""
    alone = claimed(
        setup.journal,
        what=setup.declaration.key,
        timeout=setup.timeouts.claim,
        sleep=setup.sleep,
        log=setup.log,
    )
    with alone as claim, newest_models(setup) as builder, setup.server() as site:
        planner = Planner(setup, _settings(setup, options), builder, site, {})
        jobs = Jobs(site, setup.timeouts, setup.sleep, setup.log)
        sender = Sender(claim, jobs, planner.tags, planner.record, planner.effects, planner.seconds)
        planner.reads_jobs = sender.reads_jobs
        # How long it waited for its turn, for the models and for a session, is not its own time.
        yield _Phases(setup, claim, planner, sender, started=time.monotonic())

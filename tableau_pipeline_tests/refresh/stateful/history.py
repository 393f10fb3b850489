"""A history: the world in which refreshes of one data source run and events happen to them.

`History` holds the sandbox server, the models, the journals and the clock, and runs refreshes.
"""

import logging
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from tableauhyperapi import HyperException

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.core.journal import Owner
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.outcome import Accept
from tableau_pipeline.publishing.session import Password, signed_in
from tableau_pipeline.refresh.decide import Publish
from tableau_pipeline.refresh.refresh import DECISION
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline_tests.refresh.stateful.checks.metadata import expected_metadata
from tableau_pipeline_tests.refresh.stateful.checks.outcome import (
    Outcome,
    Start,
    check_outcome,
    describe,
    kinds_of,
)
from tableau_pipeline_tests.refresh.stateful.checks.requests import Requests
from tableau_pipeline_tests.refresh.stateful.checks.require import CheckFailed, require
from tableau_pipeline_tests.refresh.stateful.journals import (
    MemoryStore,
    PublisherJournal,
    SimulatedJournal,
)
from tableau_pipeline_tests.refresh.stateful.models.snapshots import Store
from tableau_pipeline_tests.refresh.stateful.models.tables import NOON, Model
from tableau_pipeline_tests.refresh.stateful.refreshes import (
    Killed,
    Refresh,
    TimedEvent,
)
from tableau_pipeline_tests.refresh.stateful.scenarios import KEY, ROOT, Scenario
from tableau_pipeline_tests.refresh.stateful.server.contents import (
    Item,
    Metadata,
    Rows,
    hyperd,
    published_metadata,
    rows_of,
)
from tableau_pipeline_tests.refresh.stateful.server.network import URL, Network, intercepted
from tableau_pipeline_tests.refresh.stateful.server.other_user import BOSS, EVE, OtherUser
from tableau_pipeline_tests.refresh.support.asked import Asked
from tableau_sandbox.options import UserSeed
from tableau_sandbox.simulation import Datasource, Simulation, simulated

LOG = logging.getLogger(__name__)
WORKER = UserSeed(name="worker", password="worker-secret")
ADMIN = UserSeed(name="worker", password="worker-secret", site_role="SiteAdministratorCreator")
# The publishers of the data source by name: the id of the deployment, and the key. "other" is
# another deployment. "twin" is another declaration of our deployment. "root" is our declaration in
# another environment.
PUBLISHERS = {
    "ours": ("ours", KEY),
    "other": ("other", KEY),
    "twin": ("ours", f"{KEY} twin"),
    "root": (f"ours@{ROOT}", f"{KEY}@{ROOT}"),
}
TIMEOUTS = Timeouts(claim=30, job=300, queue=300, arrival=10, timestamp=30)


@dataclass
class History:
    """The data source, its models and its journals.

    Attributes:
        tableau: the sandbox server.
        requests: the requests of our refreshes, and the changes by other users.
        chance: draws the details that the scenario leaves open.
        declaration: the present declaration of the data source by our deployment.
        models: the models by name.
        journals: the journals by publisher. Our own journal is "ours".
        moment: a counter of all events, which shows the order of two events.
        trace: what happened, in words.
        running: the refreshes that run. Only the last one is active; the others wait for it.
        metadata_unclear: a refresh ended with an unknown outcome, or records were lost, and no
            publish has replaced the metadata since. Then no check knows who removed declared
            metadata.
        edits_unclear: like `metadata_unclear`, but until a publish has dropped the possible edits
            of users. A merging publish keeps such edits.
        luids_elsewhere: the LUIDs of the data sources that the other environment published.
        met: counts the events, outcomes, refusals and doubts.
        declared: the declarations of refreshes without warnings or problems, by their
            checkpoints as JSON.
    """

    scenario: Scenario
    tableau: Simulation
    other_user: OtherUser
    requests: Requests
    chance: Random
    folder: Path
    declaration: Declaration
    models: dict[str, Model]
    store: Store
    journals: dict[str, PublisherJournal]
    moment: int = 0
    trace: list[str] = field(default_factory=list)
    running: list[Refresh] = field(default_factory=list)
    metadata_unclear: bool = False
    edits_unclear: bool = False
    luids_elsewhere: set[str] = field(default_factory=set)
    met: Counter[str] = field(default_factory=Counter)
    declared: dict[str, Declaration] = field(default_factory=dict)
    _runs: int = 0

    @property
    def today(self) -> date:
        """The day by the pipeline's clock."""
        return self.client_now().date()

    def client_now(self) -> datetime:
        """The time by the pipeline's clock, which may be wrong."""
        return self.tableau.now + timedelta(seconds=self.scenario.client_ahead)

    def seconds(self) -> float:
        """The seconds of a monotonic clock."""
        return self.tableau.now.timestamp()

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        indent = "    " * len(self.running)
        self.trace.append(f"{self.tableau.now:%d %H:%M:%S.%f}"[:14] + f" {indent}{line}")

    def next_moment(self) -> int:
        self.moment += 1
        return self.moment

    @property
    def backups(self) -> Path:
        """The folder where refreshes save data sources before they drop users' edits."""
        return self.folder / "kept"

    def data_source(self) -> Datasource | None:
        """The data source that our refreshes publish; None if it does not exist."""
        return self.requests.data_source()

    def published_rows(self) -> Rows | None:
        """The rows of the data source that our refreshes publish; None if it does not exist."""
        datasource = self.data_source()
        return rows_of(self.tableau, datasource) if datasource else None

    def metadata_of(self, datasource: Datasource) -> Metadata:
        """The metadata of a data source, with its permissions."""
        return published_metadata(datasource) | self.other_user.rules(datasource)

    def known_items(self, datasource: Datasource) -> set[Item]:
        """The items of metadata that the data source has, or that are declared."""
        contents = {name: model.content for name, model in self.models.items()}
        return {*self.metadata_of(datasource), *expected_metadata(self.declaration, contents)}

    def reach_point(self, name: str) -> None:
        """Let the active refresh reach a point, where its events happen.

        Raises:
            Killed: the process of the refresh is gone.
        """
        refresh = self.running[-1]
        if refresh.killed:
            raise Killed
        refresh.point_count += 1
        if refresh.point_count > 3000:
            raise AssertionError(f"{refresh.name} never ends")
        self.next_moment()
        if name == "read the journal" or name.startswith("append "):
            self.tableau.pass_time(self.scenario.store_seconds)
        if name == "read the journal":
            refresh.read_at, refresh.last_call = self.moment, ""
        if name.startswith("after "):
            refresh.last_call = name.removeprefix("after ")
        if name == "appended claim":
            refresh.holds_claim = refresh.has_claimed = True
        if name.startswith("created closing"):
            refresh.holds_claim = False
        self.trigger(refresh, name)
        if refresh.killed:
            self.note(f"{refresh.name} is killed at {name!r}")
            raise Killed

    def trigger(self, refresh: Refresh, name: str) -> None:
        """Run the events of a refresh that are due at a point."""
        for due in refresh.due(name):
            self.happen(due.event, refresh)

    def happen(self, event: Any, refresh: Refresh | None = None) -> None:
        """Run an event, during a refresh or before one."""
        self.met[f"event: {event.function.__name__.replace('_', ' ')}"] += 1
        event(self, refresh)

    def sleep(self, seconds: float) -> None:
        """Let the active refresh wait."""
        self.reach_point("sleep")
        self.tableau.pass_time(max(seconds, 0.001))

    def new_refresh(self, *, publisher: str = "ours", events: Iterable[TimedEvent] = ()) -> Refresh:
        """Return a refresh that has not begun."""
        self._runs += 1
        kind = "script" if self.scenario.scripts and self._runs % 2 else "run"
        owner = Owner(run_id=f"{kind} {self._runs}", step="stateful")
        journal = self.journals[publisher]
        # The twin finds the data source of another declaration, which it may adopt.
        adopt = self.declaration.adopt or publisher == "twin"
        declaration = replace(self.declaration, key=journal.key, adopt=adopt)
        clock, wiped = self.client_now, journal.wiped
        return Refresh(owner, journal, declaration, self.store, clock, list(events), wiped=wiped)

    def run(self, refresh: Refresh, options: Asked) -> Outcome:
        """Run a refresh and check its outcome. Meanwhile, the refreshes that are running wait.

        Raises:
            CheckFailed: a check failed.
        """
        start, refresh.options, others = (
            Start.of(self, refresh),
            options,
            self.of_environment(ours=False),
        )
        refresh.journal.save()
        # A dry run trusts the listings of the journal, so its listings do not lag.
        store, is_late = refresh.journal.store, self.scenario.lags and not options.dry_run
        lags, store.lags = store.lags, is_late
        self.running.append(refresh)
        self.note(f"{refresh.name} begins")
        try:
            outcome: Outcome = options.carry_out(self.setup(refresh))
        except (RefreshError, Killed) as error:
            outcome = error
        except (HyperException, OSError) as error:
            raise CheckFailed(f"a refresh fails and names no remedy: {error!r}") from error
        finally:
            self.running.pop()
            self.close_edits(refresh)
            store.lags, store.fault = lags, None
        require(self.of_environment(ours=False) == others, "a refresh changes another environment")
        if not isinstance(outcome, Killed):
            refresh.journal.ended.add(refresh.name)
        self.note(f"{refresh.name}: {describe(outcome)}")
        self.met.update(kinds_of(outcome))
        check_outcome(self, refresh, start, outcome)
        if options.dry_run or options.build_only:
            # Such a run has changed nothing.
            return outcome
        if isinstance(outcome, Refreshed) and not (outcome.warnings or outcome.problems):
            self.declared[outcome.checkpoint.model_dump_json()] = refresh.declaration
        if not (isinstance(outcome, Refreshed) and outcome.checkpoint):
            self.metadata_unclear = self.edits_unclear = True
            self._note_takeover(refresh)
        elif isinstance(outcome.plan, Publish) and outcome.plan.mode is not PublishMode.REPLACE:
            self.metadata_unclear = False
            self.edits_unclear = self.edits_unclear and outcome.plan.merged
        return outcome

    def _note_takeover(self, refresh: Refresh) -> None:
        """Note that our records lack the metadata that an unfinished takeover has dropped."""
        has_published = any(request.took_effect for request in refresh.requests)
        datasource = self.data_source()
        if datasource and has_published and Accept.TAKEOVER in refresh.options.accept:
            self.requests.note_origin_unknown(datasource.luid, self.known_items(datasource))

    def of_environment(self, *, ours: bool) -> dict[str, object]:
        """By LUID, the data sources of our environment, or of the other one, with their rows."""
        return {
            datasource.luid: (datasource, rows_of(self.tableau, datasource))
            for datasource in self.tableau.datasources()
            if (datasource.luid in self.luids_elsewhere) is not ours
        }

    def close_edits(self, refresh: Refresh) -> None:
        """End the period in which the edits of a refresh may move time stamps."""
        if refresh.edited_at and not refresh.killed:
            self.requests.edits.append((refresh.edited_at, self.tableau.now))
        refresh.edited_at = None

    def upgrade(self) -> None:
        """If a later release has written records, upgrade our deployment to that release."""
        for journal in self.journals.values():
            if journal.later_at is not None:
                self.note("this deployment is upgraded, too")
                journal.upgrade()

    def forget_runs(self) -> None:
        """Let Dagster forget all runs so far."""
        for journal in self.journals.values():
            journal.forgotten.update(f"run {number + 1}" for number in range(self._runs))

    def end_all_runs(self) -> None:
        """Let Dagster report all runs so far as ended."""
        for journal in self.journals.values():
            journal.ended.update(f"run {number + 1}" for number in range(self._runs))

    def store_feeds(self) -> None:
        """Store the feeds: the keys that changed last, or all keys that ever changed."""
        for shape in self.scenario.shapes:
            model = self.models[shape.name]
            types = {column.name: column.type for column in shape.columns}
            keys = model.last_changed_keys if self.scenario.forgetful else model.changed_keys
            schema = {f"f_{key}": types[key] for key in shape.keys}
            self.store.store_rows(f"feed_{shape.name}", schema, sorted(keys, key=repr))

    def setup(self, refresh: Refresh) -> Setup:
        """The product's setup for a refresh, with simulated parts."""

        @contextmanager
        def server() -> Generator:
            credentials = Password(WORKER.name, WORKER.password)
            with signed_in(URL, credentials=credentials, log=LOG) as site:
                yield site

        hyperd.cache_clear()
        return Setup(
            declaration=refresh.declaration,
            snapshots=refresh,
            journal=SimulatedJournal(refresh, self.reach_point),
            server=server,
            hyper=hyperd,
            folder=self.folder / refresh.journal.name,
            backups=self.backups,
            log=_logger(refresh),
            timeouts=TIMEOUTS,
            now=refresh.now,
            sleep=self.sleep,
        )


def _logger(refresh: Refresh) -> logging.Logger:
    """A logger that notes the decisions of a refresh."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg == DECISION:
                decision, reason = record.args or ()
                refresh.decisions.append((str(decision), str(reason)))

    logger = logging.Logger(refresh.name)
    logger.addHandler(Listener())
    return logger


@contextmanager
def new_history(scenario: Scenario, chance: Random) -> Generator[History]:
    """A history at its beginning, with a server of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="history")))
        server = stack.enter_context(
            simulated(
                folder / "server",
                start=NOON,
                chance=chance,
                users=(ADMIN if scenario.admin else WORKER, BOSS, EVE),
                session_minutes=10**7,
                **scenario.quirks,
            )
        )
        store = Store(folder / "snapshots")
        records = MemoryStore(lambda: server.now, chance)
        if scenario.short:
            stack.enter_context(mock.patch("tableau_pipeline.core.journal.KEPT", 2))
        history = History(
            scenario=scenario,
            tableau=server,
            other_user=OtherUser(server, folder / "theirs"),
            requests=Requests(server, chance),
            chance=chance,
            folder=folder,
            declaration=scenario.declaration(),
            models={shape.name: shape.model() for shape in scenario.shapes},
            store=store,
            journals={
                name: PublisherJournal.of(name, records, instance, key)
                for name, (instance, key) in PUBLISHERS.items()
            },
        )
        history.requests.history = history
        network = Network(server, chance, history)
        stack.enter_context(intercepted(network.carry, history.sleep))
        yield history

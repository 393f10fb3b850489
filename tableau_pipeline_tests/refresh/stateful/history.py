"""A history: refreshes of one data source, and all that happens to it and to them."""

import logging
import tempfile
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.core.journal import Owner
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.session import Password, signed_in
from tableau_pipeline.refresh.decide import Publish
from tableau_pipeline.refresh.refresh import DECISION
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline_tests.refresh.stateful.actors import (
    Actor,
    Event,
    Killed,
    Log,
    SimulatedJournal,
)
from tableau_pipeline_tests.refresh.stateful.checks.ledger import Ledger
from tableau_pipeline_tests.refresh.stateful.checks.metadata import wanted
from tableau_pipeline_tests.refresh.stateful.checks.promise import require
from tableau_pipeline_tests.refresh.stateful.checks.verdict import Outcome, Start, check, describe
from tableau_pipeline_tests.refresh.stateful.models.snapshots import Store
from tableau_pipeline_tests.refresh.stateful.models.tables import NOON, Model
from tableau_pipeline_tests.refresh.stateful.scenarios import KEY, ROOT, Scenario
from tableau_pipeline_tests.refresh.stateful.server.contents import (
    Place,
    Published,
    Shown,
    held,
    hyperd,
    shown,
)
from tableau_pipeline_tests.refresh.stateful.server.network import URL, Network, wired
from tableau_pipeline_tests.refresh.stateful.server.other_user import BOSS, EVE, OtherUser
from tableau_pipeline_tests.refresh.support.asked import Asked
from tableau_sandbox.options import UserSeed
from tableau_sandbox.simulation import Datasource, Simulation, simulated

LOG = logging.getLogger(__name__)
WORKER = UserSeed(name="worker", password="worker-secret")
ADMIN = UserSeed(name="worker", password="worker-secret", site_role="SiteAdministratorCreator")
# Who may publish the data source: the ids of their instances, and their keys. "other" is another
# deployment, "twin" another declaration of our own, and "root" our own in another environment.
PUBLISHERS = {
    "ours": ("ours", KEY),
    "other": ("other", KEY),
    "twin": ("ours", f"{KEY} twin"),
    "root": (f"ours@{ROOT}", f"{KEY}@{ROOT}"),
}
TIMEOUTS = Timeouts(claim=30, job=300, queue=300, timestamp=5)


@dataclass
class History:
    """The data source, its models, its journals, and what is known of them for certain.

    Attributes:
        declaration: as our instance declares it now.
        logs: the journals, by publisher; "ours" is the one that counts.
        moment: counts whatever happens, so that one can tell what came first.
        trace: what happened, in words.
        actors: the refreshes that run, the innermost last.
        unclear: a refresh has left something open, or its records were lost, and none has replaced
            the metadata since: who took away what is declared of them is not known.
        elsewhere: the LUIDs of what the other environment has published.
    """

    scenario: Scenario
    tableau: Simulation
    other_user: OtherUser
    ledger: Ledger
    chance: Random
    folder: Path
    declaration: Declaration
    models: dict[str, Model]
    store: Store
    logs: dict[str, Log]
    moment: int = 0
    trace: list[str] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)
    unclear: bool = False
    elsewhere: set[str] = field(default_factory=set)
    _runs: int = 0

    @property
    def today(self) -> date:
        """By our own clock."""
        return self.client_now().date()

    def client_now(self) -> datetime:
        """The present by our own clock."""
        return self.tableau.now + timedelta(seconds=self.scenario.client_ahead)

    def seconds(self) -> float:
        """As clocks count them that nobody sets."""
        return self.tableau.now.timestamp()

    def note(self, line: str) -> None:
        indent = "    " * len(self.actors)
        self.trace.append(f"{self.tableau.now:%d %H:%M:%S.%f}"[:14] + f" {indent}{line}")

    def next_moment(self) -> int:
        self.moment += 1
        return self.moment

    @property
    def backups(self) -> Path:
        """Where data sources are saved before the work of people in them is lost."""
        return self.folder / "kept"

    def found(self) -> Datasource | None:
        """The data source that our refreshes are about, if there is one."""
        return self.ledger.ours()

    def holds(self) -> Published | None:
        found = self.found()
        return held(self.tableau, found) if found else None

    def shows(self, datasource: Datasource) -> Shown:
        return shown(datasource) | self.other_user.rules(datasource)

    def known_places(self, datasource: Datasource) -> set[Place]:
        """Whatever of it people see, or the declaration speaks of."""
        contents = {name: model.content for name, model in self.models.items()}
        return {*self.shows(datasource), *wanted(self.declaration, contents)}

    def point(self, name: str) -> None:
        """The refresh that runs comes to a point, where something may happen to it."""
        actor = self.actors[-1]
        if actor.dead:
            raise Killed
        actor.points += 1
        if actor.points > 3000:
            raise AssertionError(f"{actor.name} never ends")
        self.next_moment()
        if name == "read the journal":
            actor.read = self.moment
        if name == "appended claim":
            actor.claimed = actor.has_claimed = True
        if name.startswith("appended closing"):
            actor.claimed = False
        self.happen(actor, name)
        if actor.dead:
            self.note(f"{actor.name} is killed at {name!r}")
            raise Killed

    def happen(self, actor: Actor, name: str) -> None:
        """Let happen what is to happen at a point."""
        for event in actor.due(name):
            event.what(self, actor)

    def sleep(self, seconds: float) -> None:
        """Whoever runs waits."""
        self.point("sleep")
        self.tableau.pass_time(max(seconds, 0.001))

    def actor(self, *, publisher: str = "ours", events: Iterable[Event] = ()) -> Actor:
        """A refresh that is about to run."""
        self._runs += 1
        owner = Owner(run_id=f"run {self._runs}", step="stateful")
        log = self.logs[publisher]
        # Whoever meets the data source of another declaration is told to adopt it, and may do so.
        adopt = self.declaration.adopt or publisher == "twin"
        declared, clock = replace(self.declaration, key=log.key, adopt=adopt), self.client_now
        return Actor(owner, log, declared, self.store, clock, list(events), wiped=log.wiped)

    def refresh(self, actor: Actor, options: Asked) -> Outcome:
        """Refresh, and check what came of it; whatever runs already waits meanwhile.

        Raises:
            BrokenPromise: it has not kept its promise.
        """
        start, actor.options, theirs = (
            Start.of(self, actor),
            options,
            self.of_environment(ours=False),
        )
        self.actors.append(actor)
        self.note(f"{actor.name} begins")
        try:
            outcome: Outcome = options.carry_out(self.setup(actor))
        except (RefreshError, Killed) as error:
            outcome = error
        finally:
            self.actors.pop()
            self.close_edits(actor)
        require(self.of_environment(ours=False) == theirs, "it changes another environment")
        if not isinstance(outcome, Killed):
            actor.log.ended.add(actor.name)
        self.note(f"{actor.name}: {describe(outcome)}")
        check(self, actor, start, outcome)
        if not (isinstance(outcome, Refreshed) and outcome.checkpoint):
            self.unclear = True
        elif isinstance(outcome.plan, Publish) and outcome.plan.mode is not PublishMode.REPLACE:
            self.unclear = False
        return outcome

    def of_environment(self, *, ours: bool) -> dict[str, object]:
        """All that the data sources of our environment are, or those of the other one."""
        return {
            each.luid: (each, held(self.tableau, each))
            for each in self.tableau.datasources()
            if (each.luid in self.elsewhere) is not ours
        }

    def close_edits(self, actor: Actor) -> None:
        """A refresh looks at the data source, or ends: from now on, time stamps are another's."""
        if actor.edited_at and not actor.dead:
            self.ledger.edits.append((actor.edited_at, self.tableau.now))
        actor.edited_at = None

    def upgrade(self) -> None:
        """Our release becomes the one that has written among our records, if one has."""
        for log in self.logs.values():
            if log.later_at is not None:
                self.note("this deployment is upgraded, too")
            log.later_at = None

    def end_all(self) -> None:
        """Dagster knows of every run that it has ended."""
        for log in self.logs.values():
            log.ended.update(f"run {number + 1}" for number in range(self._runs))

    def store_feeds(self) -> None:
        """Let each feed of changes name the keys that changed, lately or ever."""
        for shape in self.scenario.shapes:
            model = self.models[shape.name]
            types = {column.name: column.type for column in shape.columns}
            keys = model.lately if self.scenario.forgetful else model.changed_keys
            schema = {f"f_{key}": types[key] for key in shape.keys}
            self.store.store_rows(f"feed_{shape.name}", schema, sorted(keys, key=repr))

    def setup(self, actor: Actor) -> Setup:

        @contextmanager
        def server() -> Generator:
            credentials = Password(WORKER.name, WORKER.password)
            with signed_in(URL, credentials=credentials, log=LOG) as site:
                yield site

        hyperd.cache_clear()
        return Setup(
            declaration=actor.declaration,
            snapshots=actor,
            journal=SimulatedJournal(actor, self.point),
            server=server,
            hyper=hyperd,
            folder=self.folder / actor.log.name,
            backups=self.backups,
            log=_listened_to(actor),
            timeouts=TIMEOUTS,
            now=actor.now,
            sleep=self.sleep,
        )


def _listened_to(actor: Actor) -> logging.Logger:
    """A log that notes what a refresh decides."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg == DECISION:
                decision, reason = record.args or ()
                actor.decided.append((str(decision), str(reason)))

    log = logging.Logger(actor.name)
    log.addHandler(Listener())
    return log


@contextmanager
def history(scenario: Scenario, chance: Random) -> Generator[History]:
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
        made = History(
            scenario=scenario,
            tableau=server,
            other_user=OtherUser(server, folder / "theirs"),
            ledger=Ledger(server, chance),
            chance=chance,
            folder=folder,
            declaration=scenario.declaration(),
            models={shape.name: shape.model() for shape in scenario.shapes},
            store=store,
            logs={
                name: Log(name, instance, key, scenario.short, chance)
                for name, (instance, key) in PUBLISHERS.items()
            },
        )
        made.ledger.history = made
        network = Network(server, chance, made)
        stack.enter_context(wired(network.carry, made.sleep))
        yield made

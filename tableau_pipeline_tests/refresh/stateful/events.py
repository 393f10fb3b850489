"""What happens while a refresh is under way; between refreshes, the same hands are at work."""

from dataclasses import dataclass
from typing import Any

from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX
from tableau_pipeline.refresh.plan import Options
from tableau_pipeline.sandbox import publishing
from tableau_pipeline.sandbox.control.faults import FailJob
from tableau_pipeline_tests.refresh.stateful import promise
from tableau_pipeline_tests.refresh.stateful.actors import Actor, Trouble
from tableau_pipeline_tests.refresh.stateful.models.changes import Change
from tableau_pipeline_tests.refresh.stateful.server.tableau import Fate


@dataclass(frozen=True)
class Kill:
    """The process is gone.

    Attributes:
        noticed: Dagster says at once that the run has ended.
    """

    noticed: bool = True

    def __call__(self, history: Any, actor: Actor) -> None:
        actor.dead = True
        if self.noticed:
            actor.log.ended.add(actor.name)


@dataclass(frozen=True)
class Break:
    """A request comes to nothing, or its answer does; without a status the line is dead."""

    status: int | None = None

    def __call__(self, history: Any, actor: Actor) -> None:
        history.tell(f"trouble on the line: {self.status or 'it breaks'}")
        actor.trouble, actor.troubled = Trouble(self.status), True


@dataclass(frozen=True)
class Fail:
    """The newest job of ours is going to fail, or to take long."""

    fate: Fate = Fate(fails=FailJob(notes="Out of memory."))

    def __call__(self, history: Any, actor: Actor) -> None:
        if actor.sendings:
            history.tell(f"job {actor.sendings[-1].job[:4]} is to meet its fate: {self.fate}")
            history.tableau.fates[actor.sendings[-1].job] = self.fate


@dataclass(frozen=True)
class Other:
    """Another refresh runs, while this one does nothing.

    Attributes:
        takes_over: Dagster says that this one has ended, though it goes on afterwards.
    """

    takes_over: bool
    options: Options

    def __call__(self, history: Any, actor: Actor) -> None:
        if len(history.actors) > 1:
            return
        history.tell(
            f"another refresh comes{', since this one is said to have ended' * self.takes_over}"
        )
        if self.takes_over:
            actor.log.ended.add(actor.name)
        other = history.actor(instance=actor.log.instance)
        history.refresh(other, self.options)
        if self.takes_over and actor.claimed and other.claimed:
            actor.overtaken = history.next_moment()


@dataclass(frozen=True)
class Wipe:
    """Somebody wipes the asset; not while something of ours is on its way."""

    def __call__(self, history: Any, actor: Actor | None = None) -> None:
        if not history.ledger.in_flight():
            history.tell("the asset is wiped")
            history.logs["ours"].wipe()


@dataclass(frozen=True)
class Materialize:
    """A model gets other rows."""

    table: int
    changes: tuple[Change, ...]
    again: bool = False

    def __call__(self, history: Any, actor: Actor | None = None) -> None:
        tables = history.declaration.tables
        model = history.models[tables[self.table % len(tables)].model]
        for each in self.changes:
            history.tell(f"{model.name}: {each}")
            model.become(each(model))
        history.store.store(model, again=self.again)
        history.store_feeds()


@dataclass(frozen=True)
class Hand:
    """Somebody else does something to the data source.

    Attributes:
        deed: what.
        how: which rows or columns become others, or the other place.
        table: which one, of those that are published.
    """

    deed: str
    how: str = ""
    table: int = 0

    def __call__(self, history: Any, actor: Actor | None = None) -> None:
        target = history.found()
        if target is None:
            if self.deed == "creates":
                history.tell("somebody publishes a namesake")
                declared = history.declaration
                project = history.hands.project(declared.project)
                history.hands.publishes_namesake(declared.name, project)
                history.ledger.handled = history.next_moment()
            return
        before = promise.Look.at(history, target)
        history.tell(f"somebody {self}")
        self._do(history, target)
        promise.note_hand(history, self.deed, before)

    def _do(self, history: Any, target: Any) -> None:
        hands, table = history.hands, self.table
        match self.deed:
            case "replaces" if history.world.switches["replace"] != "refused":
                hands.publishes(target, self.how, mode=publishing.REPLACE, table=table)
            case "replaces" | "overwrites":
                hands.publishes(target, self.how, mode=publishing.OVERWRITE, table=table)
            case "updates":
                hands.updates(target, self.how, table=table, at_once=True)
            case "sends an update":
                hands.updates(target, self.how, table=table, at_once=False)
            case "edits":
                hands.edits(target)
            case "describes":
                hands.describes(target)
            case "tags":
                hands.tags(target, "theirs")
            case "untags":
                hands.untags(target, history.declaration.tag)
            case "untags the instance":
                hands.untags(target, f"{INSTANCE_TAG_PREFIX}ours")
            case "renames":
                hands.renames(target, self.how)
            case "moves":
                hands.moves(target, self.how)
            case "deletes":
                hands.deletes(target)
            case "cancels":
                hands.cancels(history.chance)
            case _:
                pass

    def __str__(self) -> str:
        return f"{self.deed} {self.how}".strip()

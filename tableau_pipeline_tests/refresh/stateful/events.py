"""What happens while a refresh is under way.

`Meddle`, `Wipe` and `LaterRelease` also happen between refreshes.
"""

from dataclasses import dataclass
from typing import Any

from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX
from tableau_pipeline.refresh.plan import Options
from tableau_pipeline_tests.refresh.stateful.actors import Actor, NetworkFault
from tableau_pipeline_tests.refresh.stateful.checks import promise
from tableau_pipeline_tests.refresh.stateful.models.changes import Change
from tableau_sandbox.simulation import Fate


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
    """A request comes to nothing, or its answer does; without a status the connection breaks."""

    status: int | None = None

    def __call__(self, history: Any, actor: Actor) -> None:
        history.note(f"a network fault: {self.status or 'it breaks'}")
        actor.fault, actor.had_fault = NetworkFault(self.status), True


@dataclass(frozen=True)
class Fail:
    """The newest job of ours is going to fail, or to take long."""

    fate: Fate

    def __call__(self, history: Any, actor: Actor) -> None:
        if actor.sendings:
            history.note(f"job {actor.sendings[-1].job[:4]} is to meet its fate: {self.fate}")
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
        # Where no time passes, a refresh would wait for a job for ever.
        if len(history.actors) > 1 or history.tableau.stands_still:
            return
        history.note(
            f"another refresh comes{', since this one is said to have ended' * self.takes_over}"
        )
        if self.takes_over:
            actor.log.ended.add(actor.name)
        other = history.actor(publisher=actor.log.name)
        history.refresh(other, self.options)
        if self.takes_over and actor.claimed and other.has_claimed:
            actor.overtaken = history.next_moment()


@dataclass(frozen=True)
class Wipe:
    """Somebody wipes the asset; not while something of ours is on its way."""

    def __call__(self, history: Any, actor: Actor | None = None) -> None:
        if not history.ledger.in_flight():
            history.note("the asset is wiped")
            history.logs["ours"].wipe()


@dataclass(frozen=True)
class LaterRelease:
    """Another process of this deployment was upgraded, and stores a record in a later format."""

    def __call__(self, history: Any, actor: Actor | None = None) -> None:
        history.note("a later release stores a record")
        history.logs["ours"].later_at = history.next_moment()


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
            history.note(f"{model.name}: {each}")
            model.become(each(model))
        history.store.store(model, again=self.again)
        history.store_feeds()


@dataclass(frozen=True)
class Meddle:
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
                history.note("somebody publishes a namesake")
                declared = history.declaration
                project = history.other_user.project(declared.project)
                history.other_user.publishes_same_name(declared.name, project)
                history.ledger.meddled_at = history.next_moment()
            return
        before = promise.Look.at(history, target)
        history.note(f"somebody {self}")
        self._do(history, target)
        promise.note_meddling(history, self.deed, before)

    def _do(self, history: Any, target: Any) -> None:
        other_user, table, how = history.other_user, self.table, self.how
        no_replace = history.scenario.quirks["replace"] == "refused"
        replace = "overwrite" if no_replace else "replace"
        own_tags = history.declaration.tag, f"{INSTANCE_TAG_PREFIX}ours"
        deeds = {
            "replaces": lambda: other_user.publishes(target, how, mode=replace, table=table),
            "overwrites": lambda: other_user.publishes(target, how, mode="overwrite", table=table),
            "updates": lambda: other_user.updates(target, how, table=table, at_once=True),
            "sends an update": lambda: other_user.updates(target, how, table=table, at_once=False),
            "edits": lambda: other_user.edits(target),
            "describes": lambda: other_user.describes(target),
            "tags": lambda: other_user.tags(target, "theirs"),
            "untags": lambda: other_user.untags(target, own_tags[0]),
            "untags the instance": lambda: other_user.untags(target, own_tags[1]),
            "renames": lambda: other_user.renames(target, how),
            "moves": lambda: other_user.moves(target, how),
            "deletes": lambda: other_user.deletes(target),
            "cancels": lambda: other_user.cancels(history.chance),
            "creates": lambda: None,
        }
        deeds[self.deed]()

    def __str__(self) -> str:
        return f"{self.deed} {self.how}".strip()

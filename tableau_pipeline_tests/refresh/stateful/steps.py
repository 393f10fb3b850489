"""The random steps of a history: refreshes, with the events before and during each refresh."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tableau_pipeline.core.declaration import Guard
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful import events
from tableau_pipeline_tests.refresh.stateful.events import Change, Event
from tableau_pipeline_tests.refresh.stateful.models import changes
from tableau_pipeline_tests.refresh.stateful.models.tables import MOST_ROWS, TYPES
from tableau_pipeline_tests.refresh.stateful.refreshes import TimedEvent
from tableau_pipeline_tests.refresh.stateful.scenarios import rules
from tableau_pipeline_tests.refresh.stateful.server import other_user
from tableau_pipeline_tests.refresh.support.asked import Asked
from tableau_sandbox.faults import (
    BreakRows,
    Cut,
    FailJob,
    HideRows,
    QueryFault,
    StaleRows,
)
from tableau_sandbox.simulation import Fate

# A run accepts a missing row filter only after a refusal has named this remedy.
ALL = frozenset(Accept) - {Accept.FILTER}
# Patterns for the names of the points at which events happen. Important points are listed several
# times, so that they are drawn more often.
_POINTS = (
    *("before send*", "after send*", "before send*", "after send*"),
    *("append intent", "created intent", "appended intent", "appended intent"),
    *("append claim", "created claim", "appended claim"),
    *("append closing*", "created closing*", "appended closing*"),
    *("read the journal", "before look", "after look", "after look*", "before download"),
    *("after ask for a job", "sleep", "job queued", "job started", "job done", "job done"),
    *("before upload", "after upload", "before tag", "after tag", "before list jobs", "*", "*"),
)
# The points after the decision, and before the call that changes the server.
_PLANNED = ("before upload", "after upload", "append intent", "appended intent")
_JOB_POINTS = ("job queued", "job started", "job done", "job done", "after ask for a job", "sleep")
_WIRE_POINTS = ("before send*", "after send*", "after send*", "before look", "before *", "after *")

# The share of histories with an interruption, see `with_interruption`.
_INTERRUPTED = 0.12
# The share of histories in which another user filters rows.
_FILTERED = 0.1


@dataclass(frozen=True)
class Step:
    """A refresh, with the events before it and during it.

    Attributes:
        before: the events before the refresh, in this order.
        during: events at points of the refresh.
        publisher: who refreshes: a key of `history.PUBLISHERS`.
        after_dry_run: a dry run comes right before the refresh, and must announce its changes.
        rollback: the version to which a user rolls back before the refresh, counted from the
            newest; None for no rollback.
        release: a user ends a hold before the refresh.
        agreed: "plan" if a user makes a plan before the events, which the refresh must carry out;
            "approval" if the user approves the plan, and the refresh must stay within the
            approval; None for a refresh with a new plan.
        bound: the limit of the approval, in percent of the rows.
    """

    before: tuple[Any, ...] = ()
    during: tuple[TimedEvent, ...] = ()
    options: Asked = field(default_factory=Asked)
    publisher: str = "ours"
    after_dry_run: bool = False
    rollback: int | None = None
    release: bool = False
    agreed: str | None = None
    bound: float | None = None

    def __str__(self) -> str:
        asked = [
            name for name in ("dry_run", "full", "metadata_only") if getattr(self.options, name)
        ]
        asked += ["build only"] * self.options.build_only
        asked += [f"accept {', '.join(sorted(self.options.accept))}"] * bool(self.options.accept)
        return f"{self.publisher} refreshes {'; '.join(asked)}".strip()


def first_step(chance: Random) -> Step:
    """The step in which all models get rows, and the data source is published first."""
    counts = [chance.choice([5, 8, 8, 5, 3, 1, 0]) for _ in range(3)]
    models = [
        Event(events.materialize, table, (Change(changes.append, count, _numbers(chance)),), False)
        for table, count in enumerate(counts)
    ]
    before = (
        Event(events.fill_models, tuple(models)),
        *[_declare_metadata(chance) for _ in range(chance.choice([0, 1, 3]))],
    )
    return Step(before, _events_during(chance), Asked())


def next_step(chance: Random) -> Step:
    """Any later step."""
    before: list[Any] = [_event_before(chance) for _ in range(chance.choice([0, 0, 1, 1, 1, 2]))]
    before += [_materialize(chance) for _ in range(chance.choice([0, 1, 1, 1, 2]))]
    chance.shuffle(before)
    options = Asked(
        dry_run=chance.random() < 0.06,
        build_only=chance.random() <= 0.03,
        full=chance.random() < 0.06,
        metadata_only=chance.random() < 0.05,
        accept=chance.choice([frozenset(), frozenset(), frozenset(), ALL - {Accept.TAKEOVER}]),
    )
    publisher = chance.choices(["ours", "other", "twin"], [88, 6, 6])[0]
    if publisher != "ours" and chance.random() < 0.5:
        options = replace(options, accept=options.accept | {Accept.TAKEOVER})
    during = _events_during(chance)
    # Nothing may happen between a dry run and the run with which the dry run is compared.
    after_dry_run = (
        not during and not options.build_only and not options.dry_run and chance.random() < 0.5
    )
    return Step(tuple(before), during, options, publisher=publisher, after_dry_run=after_dry_run)


def with_rollback(step: Step, chance: Random) -> Step:
    """Perhaps add a rollback before a step, or the end of a hold."""
    if chance.random() < 0.12:
        return replace(step, rollback=chance.randrange(3))
    return replace(step, release=chance.random() < 0.5)


def with_agreement(step: Step, chance: Random) -> Step:
    """Perhaps add a plan before a step. The step then carries out the plan, or has an approval."""
    if step.publisher != "ours" or step.after_dry_run or chance.random() > 0.12:
        return step
    options = Asked(full=chance.random() < 0.1)
    agreed, bound = chance.choice(["plan", "approval"]), chance.choice([None, 30, 100])
    before = step.before if chance.random() < 0.7 else ()
    return replace(step, options=options, agreed=agreed, bound=bound, before=before)


def with_interruption(steps: Sequence[Step], chance: Random) -> Sequence[Step]:
    """Perhaps kill a refresh once its job is done, and let another user update rows after that.

    Only the times of the job show the next refresh that the update is another user's.
    """
    if chance.random() >= _INTERRUPTED:
        return steps
    at = chance.randrange(len(steps) - 1)
    killed, following = steps[at : at + 2]
    kill = TimedEvent("job done", 1, Event(events.kill, True))
    update = Event(
        events.another_user, "updates", chance.choice(other_user.ROWS), chance.randrange(3)
    )
    pause = Event(events.time_passes, 0, chance.choice([5, 60, 600]))
    killed = replace(killed, during=(*killed.during, kill), after_dry_run=False)
    following = replace(following, before=(pause, update, *following.before))
    return (*steps[:at], killed, following, *steps[at + 2 :])


def with_filters(steps: Sequence[Step], chance: Random) -> Sequence[Step]:
    """Perhaps let another user add a row filter, and perhaps remove the filter later."""
    if chance.random() >= _FILTERED:
        return steps
    filtered, at = list(steps), chance.randrange(1, len(steps))
    column = chance.choice(["k", "cursor", "v0"])
    event = Event(events.another_user, "edits", f"filter {column}", chance.randrange(3))
    step = filtered[at]
    if chance.random() < 0.3:
        during = (*step.during, TimedEvent(chance.choice(_PLANNED), 1, event))
        filtered[at] = replace(step, during=during, after_dry_run=False)
    else:
        filtered[at] = replace(step, before=(*step.before, event))
    if at + 1 < len(steps) and chance.random() < 0.4:
        end = Event(events.another_user, "edits", "unfilter k", 0)
        filtered[at + 1] = replace(steps[at + 1], before=(*steps[at + 1].before, end))
    return filtered


def undisturbed_step(chance: Random, kind: int) -> Step:
    """A step without events during the refresh. Its dry run must announce everything.

    Args:
        kind: 0 for an update of rows; 1 if a user has also edited metadata; 2 if the declared
            metadata change as well; 3 for a change that may be refused.
    """
    table = chance.randrange(3)
    if kind == 3:
        column = Change(changes.retype, *_column(chance))
        odd = chance.choice([Change(changes.clear), Change(changes.drop_column), column])
        strict = replace(rules(chance), guard=Guard(min_rows=99))
        guarded = Event(events.declare_table, table, strict)
        refusable = [
            Event(events.materialize, table, (odd,), False),
            Event(events.place, "Stateful 2", "Default", True),
            Event(events.lose_column, table),
            guarded,
            guarded,
        ]
        return Step((chance.choice(refusable),), after_dry_run=True)
    row_changes = tuple(_row_change(chance) for _ in range(chance.choice([1, 2, 2])))
    before = [_declare_metadata(chance) for _ in range(2)] if kind == 2 else []
    if kind:
        what = chance.choice(["permits", "gives", "certifies", "describes", "edits"])
        before.append(Event(events.another_user, what, chance.choice(_USER_EVENTS[what][1]), table))
    materialize = Event(events.materialize, table, row_changes, False)
    return Step((materialize, *before), after_dry_run=True)


def _events_during(chance: Random) -> tuple[TimedEvent, ...]:
    during = [_event_during(chance) for _ in range(chance.choice([0, 0, 1, 1, 1, 2]))]
    if chance.random() < 0.25:
        during.append(_user_changes_rows(chance))
    return tuple(during)


def _user_changes_rows(chance: Random) -> TimedEvent:
    """Another user changes rows after the decision of a refresh, and before its request."""
    what = chance.choice(["updates", "updates", "replaces"])
    event = Event(events.another_user, what, chance.choice(other_user.ROWS), chance.randrange(3))
    return TimedEvent(chance.choice(_PLANNED), 1, event)


def _event_during(chance: Random) -> TimedEvent:
    kind = chance.choices(
        ["kill", "break", "user", "other", "job", "records", "store", "materialize"],
        [20, 18, 30, 14, 6, 8, 6, 4],
    )[0]
    nth, at = chance.choice([1, 1, 1, 2, 3]), chance.choice(_POINTS)
    match kind:
        case "kill":
            event = Event(events.kill, chance.random() < 0.85)
        case "break":
            status = chance.choice([None, None, None, 401, 429, 500, 503, 504])
            event, at = Event(events.network_fault, status), chance.choice(_WIRE_POINTS)
            if status in (401, 429):
                # The server refuses a call with these statuses, so the call must have no effect.
                at = at.replace("after", "before")
        case "user":
            event, at = _another_user(chance), chance.choice((*_POINTS, *_JOB_POINTS))
        case "other":
            event = Event(events.another_refresh, chance.random() < 0.6)
            at = chance.choice([point for point in _POINTS if not point.startswith("job")])
        case "job":
            event, at = _job_fate(chance), "job queued"
        case "records":
            event = _change_of_records(chance)
        case "store":
            event, at = Event(events.store_fault, chance.random() < 0.6), "append *"
        case _:
            event = _materialize(chance)
    if at == "*":
        nth = chance.randint(1, 60)
    return TimedEvent(at, nth, event)


# What declarations and users set: parts of fields, and properties of the data source.
_PARTS = ("caption", "caption", "description", "format", "role", "aggregation", "hidden", "folder")
_WHOLES = (
    *("calculation k", "calculation v0", "hierarchy", "text", "tags", "permissions"),
    *("certify", "certify", "owner"),
)
_COLUMNS = ("k", "k", "cursor")
_EDITS = tuple(
    f"{part} {column}" for part in (*_PARTS, "uncaption") for column in dict.fromkeys(_COLUMNS)
)
_EDITS = (*_EDITS, *("calculation", "calculation", "hierarchy", "folder") * 2)

# The actions of another user: the weight of each, and its possible arguments.
_USER_EVENTS = {
    "replaces": (14, other_user.ROWS),
    "updates": (18, other_user.ROWS),
    "sends an update": (5, other_user.ROWS),
    "overwrites": (3, other_user.ROWS + other_user.COLUMNS + other_user.COLUMNS),
    "edits": (12, _EDITS),
    "permits": (8, other_user.CAPABILITIES),
    "describes": (3, ("",)),
    "tags": (3, ("",)),
    "certifies": (6, ("with a note", "without", "no longer", "no longer")),
    "gives": (9, other_user.OWNERS),
    "renames": (2, ("Stateful", "Renamed", "Stateful 2")),
    "moves": (2, ("Default", "Elsewhere")),
    "deletes": (3, ("",)),
    "cancels": (3, ("",)),
    "creates": (3, ("",)),
    "untags": (1, ("",)),
    "untags the instance": (1, ("",)),
}


def _job_fate(chance: Random) -> Event:
    failing = Fate(chance.choice([0, 2]), 1, FailJob(notes=chance.choice([None, "Oh."])))
    slow = Fate(chance.choice([0, 400]), chance.choice([0, 100, 500]))
    return Event(events.job_fate, chance.choice([failing, failing, slow]))


def _change_of_records(chance: Random) -> Event:
    return chance.choice(
        [
            Event(events.wipe),
            Event(events.wipe),
            Event(events.restore, chance.randrange(10)),
            Event(events.lose_home),
            Event(events.later_release),
            Event(events.later_release),
        ]
    )


def _another_user(chance: Random) -> Event:
    what = chance.choices([*_USER_EVENTS], [often for often, _ in _USER_EVENTS.values()])[0]
    return Event(
        events.another_user, what, chance.choice(_USER_EVENTS[what][1]), chance.randrange(3)
    )


def _one_of(chance: Random, weights: Mapping[Callable[[], Event], int]) -> Event:
    """Draw one of the events by their weights."""
    return chance.choices([*weights], [*weights.values()])[0]()


def _event_before(chance: Random) -> Event:
    pick, yes = chance.choice, lambda share: chance.random() < share
    return _one_of(
        chance,
        {
            lambda: _another_user(chance): 18,
            lambda: Event(events.declare_table, chance.randrange(3), rules(chance)): 8,
            lambda: Event(events.relate, pick([1, 2, 3]), yes(0.5)): 6,
            lambda: _declare_metadata(chance): 12,
            lambda: Event(events.lose_column, chance.randrange(3)): 6,
            lambda: Event(events.collect): 8,
            lambda: _change_of_records(chance): 14,
            lambda: Event(events.time_passes, pick([0, 1, 4]), pick([0, 1, 600])): 20,
            lambda: Event(events.all_runs_end): 5,
            lambda: Event(
                events.place,
                pick(["Stateful", "Stateful 2"]),
                pick(["Default", "Elsewhere"]),
                yes(0.4),
            ): 10,
            lambda: Event(events.bad_answers, _bad_answers(chance)): 8,
            lambda: Event(events.failed_refreshes, pick([30, 60, 300]), yes(0.5)): 14,
            lambda: Event(
                events.another_environment,
                Asked(full=yes(0.3), accept=pick([frozenset(), ALL])),
                yes(0.4),
            ): 10,
            lambda: Event(
                events.adopt,
                pick(["", "", *other_user.ROWS, *other_user.COLUMNS]),
                pick(["", *_EDITS]),
                yes(0.3),
                pick([0, 0, 1, 2, 3]),
            ): 12,
            lambda: Event(
                events.damage,
                pick(["cut", "removed", "manifest"]),
                chance.randrange(3),
                chance.randrange(4),
                yes(0.2),
                pick([(), (_row_change(chance),), (_row_change(chance),)]),
            ): 12,
        },
    )


def _declare_metadata(chance: Random) -> Event:
    what = f"{chance.choice(_PARTS)} {chance.choice(_COLUMNS)}"
    if chance.random() < 0.4:
        what = chance.choice(_WHOLES)
    policy = chance.choice(["keep", "keep", "keep", "replace", "refuse"])
    return Event(
        events.declare_metadata, chance.randrange(3), what, chance.choice(["", "A", "B"]), policy
    )


def _bad_answers(chance: Random) -> QueryFault | Cut:
    path, times = "vizql-data-service/*", chance.randint(1, 4)
    return chance.choice(
        [
            StaleRows(times=times),
            StaleRows(times=times),
            HideRows(times=times, rows=chance.randint(1, 3)),
            BreakRows(times=times),
            Cut(path=path, times=times, bytes=chance.choice([0, 1, 30])),
        ]
    )


def _materialize(chance: Random) -> Event:
    draw: Callable[[], Change] = chance.choices(
        [lambda: _row_change(chance), lambda: _odd_change(chance), lambda: _column_change(chance)],
        [80, 17, 6],
    )[0]
    model_changes = [draw() for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    table, again = chance.randrange(3), chance.random() < 0.15
    return Event(events.materialize, table, tuple(model_changes), again)


def _row_change(chance: Random) -> Change:
    at = chance.randrange(MOST_ROWS)
    return chance.choice(
        [
            Change(changes.append, chance.randint(1, 3), _numbers(chance)),
            Change(changes.write, at, _numbers(chance)),
            Change(changes.touch, at, chance.randrange(6), chance.randrange(10)),
            Change(changes.delete, at),
        ]
    )


def _odd_change(chance: Random) -> Change:
    one, other = chance.randrange(MOST_ROWS), chance.randrange(MOST_ROWS)
    return chance.choice(
        [
            Change(changes.swap, one, other),
            Change(changes.rewind, chance.randint(1, 4)),
            Change(changes.rewind, 1),
            Change(changes.drop_partition, one),
            Change(changes.repartition, chance.choice([1, 2, 3])),
            Change(changes.reverse),
            Change(changes.clear),
            Change(changes.twin, one),
            Change(changes.null, one, other),
        ]
    )


def _column_change(chance: Random) -> Change:
    type_, number = _column(chance)
    return chance.choice(
        [
            Change(changes.add_column, type_, number),
            Change(changes.retype, type_, number),
            Change(changes.drop_column),
            Change(changes.reorder),
            Change(changes.relabel),
            Change(changes.leave_behind, number),
        ]
    )


def _column(chance: Random) -> tuple[str, int]:
    return chance.choice(TYPES), chance.randrange(10)


def _numbers(chance: Random) -> Sequence[int]:
    return tuple(chance.randrange(10) for _ in range(chance.randint(1, 4)))

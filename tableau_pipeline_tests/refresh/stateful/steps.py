"""The steps of a history, drawn by chance: what happens before a refresh, and while it runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tableau_pipeline.core.declaration import Guard
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful import deeds
from tableau_pipeline_tests.refresh.stateful.actors import Event
from tableau_pipeline_tests.refresh.stateful.deeds import Deed
from tableau_pipeline_tests.refresh.stateful.models import changes
from tableau_pipeline_tests.refresh.stateful.models.tables import MOST_ROWS, TYPES
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

ALL = frozenset(Accept)
# Where something may happen to a refresh; those that matter most come often.
_POINTS = (
    *("before send*", "after send*", "before send*", "after send*"),
    *("append intent", "appending intent", "appended intent", "appended intent"),
    *("append claim", "appending claim", "appended claim"),
    *("append closing*", "appending closing*", "appended closing*"),
    *("read the journal", "before look", "after look", "after look*", "before download"),
    *("after ask for a job", "sleep", "job queued", "job started", "job done", "job done"),
    *("before upload", "after upload", "before tag", "after tag", "before list jobs", "*", "*"),
)
# Between the last look at the server and the call that changes it.
_PLANNED = ("before upload", "after upload", "append intent", "appended intent")
_JOB_POINTS = ("job queued", "job started", "job done", "job done", "after ask for a job", "sleep")
_WIRE_POINTS = ("before send*", "after send*", "after send*", "before look", "before *", "after *")


@dataclass(frozen=True)
class Step:
    """Attributes:
    before: what happens, in this order.
    publisher: whose refresh it is.
    rehearsed: a dry run comes right before it, and has to tell what it will do.
    """

    before: tuple[Any, ...] = ()
    events: tuple[Event, ...] = ()
    options: Asked = field(default_factory=Asked)
    publisher: str = "ours"
    rehearsed: bool = False

    def __str__(self) -> str:
        asked = [
            name for name in ("dry_run", "full", "metadata_only") if getattr(self.options, name)
        ]
        asked += ["build only"] * self.options.build_only
        asked += [f"accept {', '.join(sorted(self.options.accept))}"] * bool(self.options.accept)
        return f"{self.publisher} refreshes {'; '.join(asked)}".strip()


def first(chance: Random) -> Step:
    """All models get rows, and the data source is published."""
    counts = [chance.choice([5, 8, 8, 5, 3, 1, 0]) for _ in range(3)]
    models = [
        Deed(deeds.materialize, table, (Deed(changes.append, count, _numbers(chance)),), False)
        for table, count in enumerate(counts)
    ]
    begin = (
        Deed(deeds.begin, tuple(models)),
        *[_say(chance) for _ in range(chance.choice([0, 1, 3]))],
    )
    return Step(begin, _faults(chance), Asked())


def step(chance: Random) -> Step:
    """Some step of a history."""
    before: list[Any] = [_happening(chance) for _ in range(chance.choice([0, 0, 1, 1, 1, 2]))]
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
    faults = _faults(chance)
    # Between a dry run and the run that it is compared with, nothing may happen.
    rehearsed = (
        not faults and not options.build_only and not options.dry_run and chance.random() < 0.5
    )
    return Step(tuple(before), faults, options, publisher=publisher, rehearsed=rehearsed)


def quiet(chance: Random, kind: int) -> Step:
    """Nothing disturbs this one, so that a dry run has to tell all of it.

    Args:
        kind: 0 for an update of rows; 1 after people have edited metadata; 2 if the declaration
            says other metadata, too; 3 for what may be refused.
    """
    table = chance.randrange(3)
    if kind == 3:
        column = Deed(changes.retype, *_column(chance))
        odd = chance.choice([Deed(changes.clear), Deed(changes.drop_column), column])
        guarded = Deed(deeds.declare, table, replace(rules(chance), guard=Guard(min_rows=99)))
        may = [
            Deed(deeds.materialize, table, (odd,), False),
            Deed(deeds.place, "Stateful 2", "Default", True),
            Deed(deeds.lose_column, table),
            guarded,
            guarded,
        ]
        return Step((chance.choice(may),), rehearsed=True)
    several = tuple(_row_change(chance) for _ in range(chance.choice([1, 2, 2])))
    before = [_say(chance) for _ in range(2)] if kind == 2 else []
    if kind:
        what = chance.choice(["permits", "gives", "certifies", "describes", "edits"])
        before.append(Deed(deeds.meddle, what, chance.choice(_DEEDS[what][1]), table))
    return Step((Deed(deeds.materialize, table, several, False), *before), rehearsed=True)


def _faults(chance: Random) -> tuple[Event, ...]:
    drawn = [_event(chance) for _ in range(chance.choice([0, 0, 1, 1, 1, 2]))]
    if chance.random() < 0.25:
        drawn.append(_meddling(chance))
    return tuple(drawn)


def _meddling(chance: Random) -> Event:
    """Another user changes rows after a refresh has decided, and before it sends."""
    what = chance.choice(["updates", "updates", "replaces"])
    who = Deed(deeds.meddle, what, chance.choice(other_user.ROWS), chance.randrange(3))
    return Event(chance.choice(_PLANNED), 1, who)


def _event(chance: Random) -> Event:
    kind = chance.choices(
        ["kill", "break", "meddle", "other", "fate", "wipe", "later", "materialize"],
        [20, 18, 30, 14, 6, 4, 3, 4],
    )[0]
    nth, at = chance.choice([1, 1, 1, 2, 3]), chance.choice(_POINTS)
    match kind:
        case "kill":
            what = Deed(deeds.kill, chance.random() < 0.85)
        case "break":
            status = chance.choice([None, None, None, 401, 429, 500, 503, 504])
            what, at = Deed(deeds.break_off, status), chance.choice(_WIRE_POINTS)
            if status in (401, 429):
                # Who is refused has not been served.
                at = at.replace("after", "before")
        case "meddle":
            what, at = _meddle(chance), chance.choice((*_POINTS, *_JOB_POINTS))
        case "other":
            what = Deed(deeds.another_refresh, chance.random() < 0.6)
            at = chance.choice([point for point in _POINTS if not point.startswith("job")])
        case "fate":
            failing = Fate(chance.choice([0, 2]), 1, FailJob(notes=chance.choice([None, "Oh."])))
            slow = Fate(chance.choice([0, 400]), chance.choice([0, 100, 500]))
            what, at = Deed(deeds.fail, chance.choice([failing, failing, slow])), "job queued"
        case "wipe":
            what = Deed(deeds.wipe)
        case "later":
            what = Deed(deeds.later_release)
        case _:
            what = _materialize(chance)
    if at == "*":
        nth = chance.randint(1, 60)
    return Event(at, nth, what)


# Of fields, and of the data source: what a declaration says, and people set.
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

# What another user does, how often, and how.
_DEEDS = {
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


def _meddle(chance: Random) -> Deed:
    what = chance.choices([*_DEEDS], [often for often, _ in _DEEDS.values()])[0]
    return Deed(deeds.meddle, what, chance.choice(_DEEDS[what][1]), chance.randrange(3))


def _one_of(chance: Random, drawn: Mapping[Callable[[], Deed], int]) -> Deed:
    """One of these, by how often each is to come."""
    return chance.choices([*drawn], [*drawn.values()])[0]()


def _happening(chance: Random) -> Deed:
    pick, yes = chance.choice, lambda share: chance.random() < share
    return _one_of(
        chance,
        {
            lambda: _meddle(chance): 18,
            lambda: Deed(deeds.declare, chance.randrange(3), rules(chance)): 8,
            lambda: Deed(deeds.relate, pick([1, 2, 3]), yes(0.5)): 6,
            lambda: _say(chance): 12,
            lambda: Deed(deeds.lose_column, chance.randrange(3)): 6,
            lambda: Deed(deeds.collect): 8,
            lambda: Deed(deeds.wipe): 6,
            lambda: Deed(deeds.time_passes, pick([0, 1, 4]), pick([0, 1, 600])): 20,
            lambda: Deed(deeds.all_runs_end): 5,
            lambda: Deed(
                deeds.place,
                pick(["Stateful", "Stateful 2"]),
                pick(["Default", "Elsewhere"]),
                yes(0.4),
            ): 10,
            lambda: Deed(deeds.bad_answers, _bad_answers(chance)): 8,
            lambda: Deed(deeds.attempts, pick([30, 60, 300]), yes(0.5)): 14,
            lambda: Deed(deeds.later_release): 4,
            lambda: Deed(
                deeds.another_environment,
                Asked(full=yes(0.3), accept=pick([frozenset(), frozenset(Accept)])),
                yes(0.4),
            ): 10,
            lambda: Deed(
                deeds.adopt,
                pick(["", "", *other_user.ROWS, *other_user.COLUMNS]),
                pick(["", *_EDITS]),
                yes(0.3),
                pick([0, 0, 1, 2, 3]),
            ): 12,
            lambda: Deed(
                deeds.damage,
                pick(["cut", "removed", "manifest"]),
                chance.randrange(3),
                chance.randrange(4),
                yes(0.2),
                pick([(), (_row_change(chance),), (_row_change(chance),)]),
            ): 12,
        },
    )


def _say(chance: Random) -> Deed:
    what = f"{chance.choice(_PARTS)} {chance.choice(_COLUMNS)}"
    if chance.random() < 0.4:
        what = chance.choice(_WHOLES)
    policy = chance.choice(["keep", "keep", "keep", "replace", "refuse"])
    return Deed(deeds.say, chance.randrange(3), what, chance.choice(["", "A", "B"]), policy)


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


def _materialize(chance: Random) -> Deed:
    made: Callable[[], Deed] = chance.choices(
        [lambda: _row_change(chance), lambda: _odd_change(chance), lambda: _column_change(chance)],
        [80, 17, 6],
    )[0]
    several = [made() for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    table, again = chance.randrange(3), chance.random() < 0.15
    return Deed(deeds.materialize, table, tuple(several), again)


def _row_change(chance: Random) -> Deed:
    at = chance.randrange(MOST_ROWS)
    return chance.choice(
        [
            Deed(changes.append, chance.randint(1, 3), _numbers(chance)),
            Deed(changes.write, at, _numbers(chance)),
            Deed(changes.touch, at, chance.randrange(6), chance.randrange(10)),
            Deed(changes.delete, at),
        ]
    )


def _odd_change(chance: Random) -> Deed:
    one, other = chance.randrange(MOST_ROWS), chance.randrange(MOST_ROWS)
    return chance.choice(
        [
            Deed(changes.swap, one, other),
            Deed(changes.rewind, chance.randint(1, 4)),
            Deed(changes.rewind, 1),
            Deed(changes.drop_partition, one),
            Deed(changes.repartition, chance.choice([1, 2, 3])),
            Deed(changes.reverse),
            Deed(changes.clear),
            Deed(changes.twin, one),
            Deed(changes.null, one, other),
        ]
    )


def _column_change(chance: Random) -> Deed:
    type_, number = _column(chance)
    return chance.choice(
        [
            Deed(changes.add_column, type_, number),
            Deed(changes.retype, type_, number),
            Deed(changes.drop_column),
            Deed(changes.reorder),
            Deed(changes.relabel),
            Deed(changes.leave_behind, number),
        ]
    )


def _column(chance: Random) -> tuple[str, int]:
    return chance.choice(TYPES), chance.randrange(10)


def _numbers(chance: Random) -> Sequence[int]:
    return tuple(chance.randrange(10) for _ in range(chance.randint(1, 4)))

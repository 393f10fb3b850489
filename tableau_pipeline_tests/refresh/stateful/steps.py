"""The steps of a history, drawn by chance: what happens before a refresh, and while it runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tableau_pipeline.refresh.plan import Accept, Options
from tableau_pipeline_tests.refresh.stateful import between_refreshes, events
from tableau_pipeline_tests.refresh.stateful.actors import Event
from tableau_pipeline_tests.refresh.stateful.models import changes, columns
from tableau_pipeline_tests.refresh.stateful.models.tables import MOST_ROWS
from tableau_pipeline_tests.refresh.stateful.models.values import TYPES
from tableau_pipeline_tests.refresh.stateful.scenarios import rules
from tableau_pipeline_tests.refresh.stateful.server import other_user
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
    options: Options = field(default_factory=Options)
    publisher: str = "ours"
    rehearsed: bool = False

    def __str__(self) -> str:
        asked = [name for name in ("dry_run", "full") if getattr(self.options, name)]
        asked += ["build only"] * (not self.options.publish)
        asked += [f"accept {', '.join(sorted(self.options.accept))}"] * bool(self.options.accept)
        return f"{self.publisher} refreshes {'; '.join(asked)}".strip()


def first(chance: Random) -> Step:
    """All models get rows, and the data source is published."""
    before = [
        events.Materialize(
            table, (changes.Append(chance.choice([5, 8, 8, 5, 3, 1, 0]), _numbers(chance)),)
        )
        for table in range(3)
    ]
    return Step((between_refreshes.Begin(tuple(before)),), _faults(chance), Options())


def step(chance: Random) -> Step:
    """Some step of a history."""
    before: list[Any] = [_happening(chance) for _ in range(chance.choice([0, 0, 1, 1, 1, 2]))]
    before += [_materialize(chance) for _ in range(chance.choice([0, 1, 1, 1, 2]))]
    chance.shuffle(before)
    options = Options(
        dry_run=chance.random() < 0.06,
        publish=chance.random() > 0.03,
        full=chance.random() < 0.06,
        accept=chance.choice([frozenset(), frozenset(), frozenset(), ALL - {Accept.TAKEOVER}]),
    )
    publisher = chance.choices(["ours", "other", "twin"], [90, 6, 4])[0]
    if publisher != "ours" and chance.random() < 0.5:
        options = replace(options, accept=options.accept | {Accept.TAKEOVER})
    faults = _faults(chance)
    # Between a dry run and the run that it is compared with, nothing may happen.
    rehearsed = not faults and options.publish and not options.dry_run and chance.random() < 0.5
    return Step(tuple(before), faults, options, publisher=publisher, rehearsed=rehearsed)


def _faults(chance: Random) -> tuple[Event, ...]:
    drawn = [_event(chance) for _ in range(chance.choice([0, 0, 1, 1, 1, 2]))]
    if chance.random() < 0.25:
        drawn.append(_meddling(chance))
    return tuple(drawn)


def _meddling(chance: Random) -> Event:
    """Somebody else changes rows after a refresh has decided, and before it sends."""
    deed = chance.choice(["updates", "updates", "replaces"])
    who = events.Meddle(deed, chance.choice(other_user.ROWS), chance.randrange(3))
    return Event(chance.choice(_PLANNED), 1, who)


def _event(chance: Random) -> Event:
    what: Any
    kind = chance.choices(
        ["kill", "break", "meddle", "other", "fate", "wipe", "later", "materialize"],
        [20, 18, 30, 14, 6, 4, 3, 4],
    )[0]
    nth = chance.choice([1, 1, 1, 2, 3])
    match kind:
        case "kill":
            what, at = events.Kill(noticed=chance.random() < 0.85), chance.choice(_POINTS)
        case "break":
            status = chance.choice([None, None, None, 401, 429, 500, 503, 504])
            what, at = events.Break(status), chance.choice(_WIRE_POINTS)
            if status in (401, 429):
                # Who is refused has not been served.
                at = at.replace("after", "before")
        case "meddle":
            what, at = meddle(chance), chance.choice((*_POINTS, *_JOB_POINTS))
        case "other":
            what = events.Other(takes_over=chance.random() < 0.6, options=Options())
            at = chance.choice([point for point in _POINTS if not point.startswith("job")])
        case "fate":
            failing = Fate(chance.choice([0, 2]), 1, FailJob(notes=chance.choice([None, "Oh."])))
            slow = Fate(chance.choice([0, 400]), chance.choice([0, 100, 500]))
            what, at = events.Fail(chance.choice([failing, failing, slow])), "job queued"
        case "wipe":
            what, at = events.Wipe(), chance.choice(_POINTS)
        case "later":
            what, at = events.LaterRelease(), chance.choice(_POINTS)
        case _:
            what, at = _materialize(chance), chance.choice(_POINTS)
    if at == "*":
        nth = chance.randint(1, 60)
    return Event(at, nth, what)


def meddle(chance: Random) -> events.Meddle:
    """Something that somebody else does."""
    deed = chance.choices(
        [
            *("replaces", "updates", "sends an update", "overwrites", "edits", "describes", "tags"),
            *("renames", "moves", "deletes", "cancels", "creates", "untags", "untags the instance"),
        ],
        [14, 18, 5, 3, 6, 3, 3, 2, 2, 3, 3, 3, 1, 1],
    )[0]
    how = {
        "replaces": other_user.ROWS,
        "updates": other_user.ROWS,
        "sends an update": other_user.ROWS,
        "overwrites": other_user.ROWS + other_user.COLUMNS + other_user.COLUMNS,
        "renames": ("Stateful", "Renamed", "Stateful 2"),
        "moves": ("Default", "Elsewhere"),
    }
    return events.Meddle(deed, chance.choice(how.get(deed, ("",))), chance.randrange(3))


def _happening(chance: Random) -> Any:
    return chance.choices(
        [
            lambda: meddle(chance),
            lambda: between_refreshes.Declare(chance.randrange(3), rules(chance)),
            lambda: between_refreshes.Relate(chance.choice([1, 2, 3]), chance.random() < 0.5),
            lambda: between_refreshes.Collect(),
            lambda: events.Wipe(),
            lambda: between_refreshes.Pass(chance.choice([0, 1, 4]), chance.choice([0, 1, 600])),
            lambda: between_refreshes.End(),
            lambda: between_refreshes.Place(
                chance.choice(["Stateful", "Stateful 2"]),
                chance.choice(["Default", "Elsewhere"]),
                taken=chance.random() < 0.4,
            ),
            lambda: between_refreshes.BadAnswers(_bad_answers(chance)),
            lambda: between_refreshes.Attempts(
                chance.choice([30, 60, 300]), killed=chance.random() < 0.5
            ),
            lambda: events.LaterRelease(),
            lambda: between_refreshes.Adopt(
                chance.choice(["", "", *other_user.ROWS, *other_user.COLUMNS]),
                edited=chance.random() < 0.7,
                forgotten=chance.random() < 0.3,
            ),
            lambda: between_refreshes.Damage(
                chance.choice(["cut", "removed", "manifest"]),
                chance.randrange(3),
                chance.randrange(4),
                newest=chance.random() < 0.2,
                again=chance.choice([(), (_row_change(chance),), (_row_change(chance),)]),
            ),
        ],
        [18, 8, 3, 8, 6, 20, 5, 10, 8, 14, 4, 8, 12],
    )[0]()


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


def _materialize(chance: Random) -> events.Materialize:
    made: Callable[[], Any] = chance.choices(
        [lambda: _row_change(chance), lambda: _odd_change(chance), lambda: _column_change(chance)],
        [80, 17, 6],
    )[0]
    several = [made() for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    return events.Materialize(chance.randrange(3), tuple(several), again=chance.random() < 0.15)


def _row_change(chance: Random) -> Any:
    at = chance.randrange(MOST_ROWS)
    return chance.choice(
        [
            changes.Append(chance.randint(1, 3), _numbers(chance)),
            changes.Write(at, _numbers(chance)),
            changes.Touch(at, chance.randrange(6), chance.randrange(10)),
            changes.Delete(at),
        ]
    )


def _odd_change(chance: Random) -> Any:
    one, other = chance.randrange(MOST_ROWS), chance.randrange(MOST_ROWS)
    return chance.choice(
        [
            changes.Swap(one, other),
            changes.Rewind(chance.randint(1, 4)),
            changes.Rewind(1),
            changes.DropPartition(one),
            changes.Repartition(chance.choice([1, 2, 3])),
            changes.Reverse(),
            changes.Clear(),
            changes.Twin(one),
            changes.Null(one, other),
        ]
    )


def _column_change(chance: Random) -> Any:
    number = chance.randrange(10)
    return chance.choice(
        [
            columns.AddColumn(chance.choice(TYPES), number),
            columns.Retype(chance.choice(TYPES), number),
            columns.DropColumn(),
            columns.Reorder(),
            columns.Relabel(),
            columns.LeaveBehind(number),
        ]
    )


def _numbers(chance: Random) -> Sequence[int]:
    return tuple(chance.randrange(10) for _ in range(chance.randint(1, 4)))

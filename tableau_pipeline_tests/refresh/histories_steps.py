"""The steps of a history: something changes, and a refresh tries to follow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hypothesis import note

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.plan import Accept, NoChange
from tableau_pipeline.refresh.step import Report
from tableau_pipeline_tests.refresh.histories_changes import mended
from tableau_pipeline_tests.refresh.histories_history import LONG, History
from tableau_pipeline_tests.refresh.histories_tables import Model
from tableau_pipeline_tests.refresh.histories_troubles import NONE, Trouble
from tableau_pipeline_tests.refresh.histories_values import published

_ALL = frozenset(Accept)


@dataclass(frozen=True)
class Step:
    """Attributes:
    before: what happens, in this order.
    changes: of the published tables, by number.
    again: all partitions are materialized, not only those that change.
    hold: no job begins any more, until something releases them.
    """

    before: tuple[Any, ...] = ()
    changes: tuple[tuple[int, Sequence[Any]], ...] = ()
    again: bool = False
    accept: tuple[Accept, ...] = ()
    full: bool = False
    dry_run: bool = False
    hold: bool = False
    trouble: Trouble = NONE

    def __call__(self, history: History) -> None:
        """Let it happen, and check what came of it."""
        for each in self.before:
            note(f"  {each}")
            each(history)
        names = [table.name for table in history.declaration.tables]
        for number, changes in self.changes:
            change(history, history.models[names[number % len(names)]], changes, again=self.again)
        store_feeds(history)
        if self.hold:
            history.source.hold_jobs()
        outcome = history.refresh(
            accept=self.accept, full=self.full, dry_run=self.dry_run, trouble=self.trouble
        )
        if isinstance(outcome, RefusedError):
            _mend(history)


def change(history: History, model: Model, changes: Sequence[Any], *, again: bool = False) -> None:
    """Let changes happen to a model, and materialize it."""
    for each in changes:
        model.become(each(model))
        note(f"  {model.name}: {each}")
    note(f"  {model.name} is now {_rows(model)}")
    history.snapshots.store(model, all_partitions=again)


def store_feeds(history: History) -> None:
    """Let each feed of changes name the keys that were touched, lately or ever."""
    for shape in history.world.shapes:
        model = history.models[shape.name]
        types = {column.name: column.type for column in shape.columns}
        keys = model.lately if history.world.forgetful else model.touched
        schema = {f"f_{key}": types[key] for key in shape.keys}
        history.snapshots.store_rows(f"feed_{shape.name}", schema, list(keys))


def calm(history: History) -> None:
    """Nothing troubles the server any more: the next refresh succeeds, or is right to refuse."""
    note("  Calm:")
    history.source.come_to_rest()
    history.check()
    outcome = history.refresh(limits=LONG)
    if _has_to_wait(outcome):
        note("  an hour passes")
        history.age += timedelta(hours=1)
        outcome = history.refresh(limits=LONG)
    if history.late and _has_to_come_again(outcome):
        note("  a time stamp has moved meanwhile")
        outcome = history.refresh(limits=LONG)
    if isinstance(outcome, RefusedError):
        outcome = history.refresh(accept=_ALL, limits=LONG)
    if isinstance(outcome, RefusedError):
        _mend(history)
        history.declaration = replace(history.declaration, adopt=True)
        outcome = history.refresh(accept=_ALL, limits=LONG)
    assert isinstance(outcome, Report), f"not refreshed in calm: {outcome}"
    if not history.late:
        again = history.refresh(accept=_ALL, limits=LONG)
        assert isinstance(again, Report)
        assert isinstance(again.plan, NoChange), f"nothing changed, but: {again.plan}"


def _mend(history: History) -> None:
    for model in history.models.values():
        if mended(model) != model.content:
            change(history, model, [mended])


def _has_to_wait(outcome: object) -> bool:
    """Who may not list jobs has to wait for as long as they may take."""
    return isinstance(outcome, RefreshError) and "nor may this user list jobs" in str(outcome)


def _has_to_come_again(outcome: object) -> bool:
    """A time stamp that moves late can do so while a refresh is under way."""
    return isinstance(outcome, RefreshError) and "was changed on the server while" in str(outcome)


def _rows(model: Model) -> str:
    names = ", ".join(f"{name} {type_}" for name, type_ in model.content.schema.items())
    rows = [f"\n    {', '.join(map(published, row.values))}" for row in model.content.rows]
    return f"({names}){''.join(rows) or ' empty'}"

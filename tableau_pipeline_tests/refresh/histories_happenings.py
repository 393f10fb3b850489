"""What may happen between two refreshes, beside changes of rows."""

import shutil
from dataclasses import dataclass, replace
from typing import Literal

from tableau_pipeline_tests.refresh.histories_history import History
from tableau_pipeline_tests.refresh.histories_worlds import Rules, related


@dataclass(frozen=True)
class Declare:
    """The policy, the window and the guard of a table are declared anew."""

    table: int
    rules: Rules

    def __call__(self, history: History) -> None:
        shapes = {shape.name: shape for shape in history.world.shapes}
        tables = list(history.declaration.tables)
        at = self.table % len(tables)
        tables[at] = shapes[tables[at].name].table(self.rules)
        history.declaration = replace(history.declaration, tables=tuple(tables))


@dataclass(frozen=True)
class Relate:
    """More or fewer tables are declared, or other relationships of the same."""

    tables: int
    chain: bool

    def __call__(self, history: History) -> None:
        known = {table.name: table for table in history.declaration.tables}
        tables = tuple(
            known.get(shape.name) or shape.table(shape.rules) for shape in history.world.shapes
        )
        declaration = replace(history.declaration, tables=tables)
        history.declaration = related(declaration, self.tables, chain=self.chain)


@dataclass(frozen=True)
class Lose:
    """Something is lost, or another record hides it."""

    what: Literal["payloads", "old snapshots", "state", "journal"]

    def __call__(self, history: History) -> None:
        match self.what:
            case "payloads":
                shutil.rmtree(history.folder / "extracts", ignore_errors=True)
            case "old snapshots":
                history.snapshots.collect()
            case "state":
                history.journal.hide()
                history.clear = False
            case "journal":
                # Otherwise nobody could know of what is still on its way.
                history.source.come_to_rest()
                history.journal.wipe()
                history.clear = False


@dataclass(frozen=True)
class Pass:
    """Days pass, and time stamps that move late have moved."""

    days: int

    def __call__(self, history: History) -> None:
        history.now += history.day * self.days
        history.source.time_passes()

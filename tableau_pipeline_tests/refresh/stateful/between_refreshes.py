"""What may happen between two refreshes, beside changes of rows and the work of other people."""

from dataclasses import dataclass, replace
from typing import Any

from tableau_pipeline.sandbox.control.faults import Cut, QueryFault
from tableau_pipeline_tests.refresh.stateful.scenarios import Rules, related


@dataclass(frozen=True)
class Begin:
    """The models get their first rows."""

    models: tuple[Any, ...]

    def __call__(self, history: Any) -> None:
        declared = history.declaration
        history.declaration = replace(
            declared, tables=tuple(shape.table(shape.rules) for shape in history.scenario.shapes)
        )
        for each in self.models:
            each(history)
        history.declaration = declared


@dataclass(frozen=True)
class Declare:
    """The policy, the window and the guard of a table are declared again."""

    table: int
    rules: Rules

    def __call__(self, history: Any) -> None:
        history.note(f"{self}")
        shapes = {shape.name: shape for shape in history.scenario.shapes}
        tables = list(history.declaration.tables)
        at = self.table % len(tables)
        tables[at] = shapes[tables[at].name].table(self.rules)
        history.declaration = replace(history.declaration, tables=tuple(tables))


@dataclass(frozen=True)
class Relate:
    """More or fewer tables are declared, or other relationships of the same."""

    tables: int
    chain: bool

    def __call__(self, history: Any) -> None:
        history.note(f"{self}")
        known = {table.name: table for table in history.declaration.tables}
        tables = tuple(
            known.get(shape.name) or shape.table(shape.rules) for shape in history.scenario.shapes
        )
        declaration = replace(history.declaration, tables=tables)
        history.declaration = related(declaration, self.tables, chain=self.chain)


@dataclass(frozen=True)
class Place:
    """The data source is declared under another name, or in another project."""

    name: str
    project: str

    def __call__(self, history: Any) -> None:
        history.note(f"{self}")
        history.other_user.project(self.project)
        history.declaration = replace(history.declaration, name=self.name, project=self.project)


@dataclass(frozen=True)
class Collect:
    """Old snapshots are removed."""

    def __call__(self, history: Any) -> None:
        history.note("old snapshots are collected")
        history.store.collect()


@dataclass(frozen=True)
class Pass:
    """Time passes."""

    days: int
    seconds: float

    def __call__(self, history: Any) -> None:
        history.note(f"{self.days} days and {self.seconds} s pass")
        history.tableau.pass_time(self.days * 86400 + self.seconds)


@dataclass(frozen=True)
class BadAnswers:
    """Some answers to questions about rows are old, broken, or of fewer rows."""

    fault: QueryFault | Cut

    def __call__(self, history: Any) -> None:
        history.note(f"the server answers with {self.fault}")
        history.tableau.services.control.add(self.fault)


@dataclass(frozen=True)
class End:
    """Dagster learns that all runs which were killed have ended; or somebody deletes those runs."""

    def __call__(self, history: Any) -> None:
        history.note("Dagster says that all runs have ended")
        history.end_all()

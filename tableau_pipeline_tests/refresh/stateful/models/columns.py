"""Changes of a model's columns."""

from dataclasses import dataclass, replace
from itertools import combinations

from tableau_pipeline_tests.refresh.stateful.models.tables import Col, Content, Model, Row


@dataclass(frozen=True)
class AddColumn:
    """A column comes, if there is none of its name."""

    type: str
    number: int

    def __call__(self, model: Model) -> Content:
        content, new = model.content, Col("extra", self.type)
        if "extra" in content.schema:
            return content
        return _columns(model, [*content.columns, new], filled=self.number)


@dataclass(frozen=True)
class DropColumn:
    """The last column that nothing depends on goes."""

    def __call__(self, model: Model) -> Content:
        columns = model.content.columns
        free = [column for column in columns if column.role == "value"]
        return _columns(model, [each for each in columns if each not in free[-1:]])


@dataclass(frozen=True)
class Retype:
    """A column that nothing depends on becomes one of another type."""

    type: str
    number: int

    def __call__(self, model: Model) -> Content:
        columns = model.content.columns
        free = [column for column in columns if column.role == "value"][-1:]
        new = [replace(each, type=self.type) if each in free else each for each in columns]
        return _columns(model, new, filled=self.number)


@dataclass(frozen=True)
class Reorder:
    """The columns come in another order."""

    def __call__(self, model: Model) -> Content:
        return _columns(model, model.content.columns[::-1])


@dataclass(frozen=True)
class Relabel:
    """Two columns of a type exchange their names, and nothing else."""

    def __call__(self, model: Model) -> Content:
        columns = list(model.content.columns)
        free = [n for n, each in enumerate(columns) if each.role in ("value", "reference")]
        for one, other in combinations(free, 2):
            if columns[one].type == columns[other].type:
                columns[one], columns[other] = (
                    replace(columns[one], name=columns[other].name),
                    replace(columns[other], name=columns[one].name),
                )
                break
        return replace(model.content, columns=tuple(columns))


@dataclass(frozen=True)
class LeaveBehind:
    """One partition is left with an extra column, until all are written again."""

    partition: int

    def __call__(self, model: Model) -> Content:
        if model.partitioning is None:
            return model.content
        keys = [key for key in model.partitioning.keys if key not in model.content.gone]
        stale = None if model.content.stale else keys[self.partition % len(keys)]
        return replace(model.content, stale=stale)


def _columns(model: Model, columns: list[Col] | tuple[Col, ...], *, filled: int = 0) -> Content:
    """The same rows in other columns."""
    content = model.content
    old = {column: n for n, column in enumerate(content.columns)}

    def values(number: int, row: Row) -> tuple:
        return tuple(
            row.values[old[column]]
            if column in old
            else column.value(row.slot, filled + number, model.partitioning)
            for column in columns
        )

    rows = tuple(Row(row.slot, values(n, row)) for n, row in enumerate(content.rows))
    return replace(content, columns=tuple(columns), rows=rows)

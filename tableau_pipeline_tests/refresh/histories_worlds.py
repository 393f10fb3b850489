"""In what world a history happens: the server's habits, the tables, and how they are declared."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tableau_pipeline.core.declaration import Declaration, Guard, Table
from tableau_pipeline.core.policies import (
    Append,
    Diff,
    Feed,
    Partitions,
    Policy,
    Replace,
    Retain,
)
from tableau_pipeline.hyper.tables import Relationship
from tableau_pipeline_tests.refresh import histories_windows as windows
from tableau_pipeline_tests.refresh.histories_settings import SETTINGS, Setting
from tableau_pipeline_tests.refresh.histories_tables import Col, Content, Model
from tableau_pipeline_tests.refresh.histories_values import KEYS, MOMENTS, TYPES

OPEN = Guard(min_rows=0, max_shrink=1.0)
_POLICIES = ("diff", "append", "partitions", "feed", "replace")


@dataclass(frozen=True)
class Rules:
    """How a table is declared; "partitions" means "diff" where there are none."""

    policy: str
    lookback: int | None
    retain: Retain | None
    guard: Guard


@dataclass(frozen=True)
class Shape:
    """A table that a data source may have."""

    name: str
    columns: tuple[Col, ...]
    partitioning: windows.Partitioning | None
    rules: Rules

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.role == "key")

    def model(self) -> Model:
        """Its model, without rows."""
        return Model(self.name, Content(self.columns), self.partitioning, self.keys)

    def table(self, rules: Rules) -> Table:
        """Its declaration."""
        types = {column.name: column.type for column in self.columns}
        retain = rules.retain
        if retain and types.get(retain.column) not in MOMENTS:
            retain = None
        return Table(
            self.name, self.name, guard=rules.guard, policy=self._policy(rules), retain=retain
        )

    def _policy(self, rules: Rules) -> Policy:
        match rules.policy:
            case "append":
                return Append("cursor", self._lookback(rules.lookback))
            case "partitions" if self.partitioning:
                return Partitions("part")
            case "feed":
                feed = Feed(f"feed_{self.name}", tuple((key, f"f_{key}") for key in self.keys))
                return Diff(self.keys, feed)
            case "replace":
                return Replace()
            case _:
                return Diff(self.keys)

    def _lookback(self, lookback: int | None) -> int | str | None:
        (type_,) = (column.type for column in self.columns if column.name == "cursor")
        if lookback is None or type_ in ("string", "boolean"):
            return None
        return f"{lookback} days" if type_ in MOMENTS else lookback


@dataclass(frozen=True)
class World:
    """What stays over a history.

    Attributes:
        worker: the pipeline's user is no administrator, and may not list jobs.
        large: files are too large for one request: the server publishes them by jobs.
        patient: wait for a time stamp that moves late.
        chain: the third table belongs to the second, not to the first.
        tables: how many of the shapes are published at first.
        forgetful: feeds name only what changed since the last try.
    """

    setting: Setting
    shapes: tuple[Shape, ...]
    tables: int
    worker: bool
    large: bool
    patient: bool
    chain: bool
    forgetful: bool
    on_schema_change: str
    rebase_after: int
    payload_limit: int | None

    def declaration(self, name: str) -> Declaration:
        """The first declaration."""
        declaration = Declaration(
            key=name,
            name=name,
            project="Default",
            tables=tuple(shape.table(shape.rules) for shape in self.shapes),
            on_schema_change=self.on_schema_change,  # ty: ignore[invalid-argument-type]
            rebase_after=self.rebase_after,
            payload_limit=self.payload_limit,
        )
        return related(declaration, self.tables, chain=self.chain)


def related(declaration: Declaration, tables: int, *, chain: bool) -> Declaration:
    """The declaration of so many of its tables, as a star or as a chain."""
    names = [table.name for table in declaration.tables]
    edges = [
        Relationship(names[number - 1 if chain else 0], one, ((f"to_{one}", "k"),))
        for number, one in enumerate(names)
        if number
    ]
    return replace(
        declaration,
        tables=declaration.tables[:tables],
        relationships=tuple(edges[: tables - 1]),
    )


retains = st.none() | st.builds(
    Retain,
    column=st.sampled_from(["moment", "cursor", "part", "moment"]),
    days=st.integers(1, 6),
    as_of=st.sampled_from(["run", "max"]),
)
rules = st.builds(
    Rules,
    policy=st.sampled_from(_POLICIES),
    lookback=st.sampled_from([None, 0, 1, 2]),
    retain=retains,
    guard=st.sampled_from([OPEN, OPEN, OPEN, Guard(), Guard(0, 0.3)]),
)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Shape, ...]:
    """Three tables, of which the second and the third may be pointed at."""
    facts = draw(_columns(single=False))
    ones = [draw(_columns(single=True)) for _ in range(2)]
    references = [
        Col(f"to_t{number}", columns[0][0].type, "reference")
        for number, columns in enumerate(ones, 2)
    ]
    facts[0].extend(references)
    ones[0][0].append(references[1])
    return tuple(
        Shape(f"t{number}", tuple(columns), partitioning, draw(rules))
        for number, (columns, partitioning) in enumerate([facts, *ones], 1)
    )


@st.composite
def _columns(draw: st.DrawFn, *, single: bool) -> tuple[list[Col], windows.Partitioning | None]:
    double = not single and draw(st.integers(0, 3)) == 2
    columns = [Col("k", draw(st.sampled_from(KEYS)), "key", step=2 if double else 1)]
    if double:
        columns.append(Col("l", draw(st.sampled_from(TYPES)), "key", cycle=2))
    columns.append(Col("cursor", draw(st.sampled_from(KEYS)), "cursor", step=2))
    columns.append(Col("moment", draw(st.sampled_from(MOMENTS)), "moment"))
    partitioning = draw(st.none() | st.sampled_from(windows.ALL))
    if partitioning:
        columns.append(Col("part", partitioning.type, "part"))
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=2))
    columns += [Col(f"v{number}", type_) for number, type_ in enumerate(types)]
    return columns, partitioning


worlds = st.builds(
    World,
    setting=st.sampled_from(SETTINGS),
    shapes=shapes(),
    tables=st.sampled_from([1, 1, 2, 3]),
    worker=st.sampled_from([False, False, False, True]),
    large=st.sampled_from([False, False, True]),
    patient=st.booleans(),
    chain=st.booleans(),
    forgetful=st.booleans(),
    on_schema_change=st.sampled_from(["additive", "publish", "refuse"]),
    rebase_after=st.sampled_from([50, 50, 50, 2]),
    payload_limit=st.sampled_from([None, None, None, None, None, 1]),
)

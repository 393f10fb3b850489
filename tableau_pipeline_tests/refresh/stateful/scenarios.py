"""The scenario of a history: the site's behaviour, the tables, and how they are declared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any, get_args, get_type_hints

from tableau_pipeline.core.declaration import (
    Declaration,
    Guard,
    Reconcile,
    Republish,
    Retain,
    Table,
)
from tableau_pipeline.core.fields import Permission
from tableau_pipeline.core.policies import Append, Diff, Feed, Partitions, Policy, ReplaceAll
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline_tests.refresh.stateful.models.tables import (
    KEYS,
    MOMENTS,
    PARTITIONINGS,
    TYPES,
    Col,
    Content,
    Model,
    Partitioning,
)
from tableau_pipeline_tests.refresh.stateful.server.other_user import CAPABILITIES
from tableau_sandbox.quirks import Quirks

KEY = "stateful"
# The root project of the other environment.
ROOT = "Staging/pr-1"
_LIMITS = (0.066, 0.1)
# Every file is larger than this limit, so refreshes download no file.
LARGE = Reconcile(max_mb=1e-6)
OPEN = Guard(min_rows=0, max_shrink=1.0)
# The share of histories in which declarations limit how many rows change.
_LIMITED = 0.1
_POLICIES = ("diff", "append", "partitions", "feed", "replace")


@dataclass(frozen=True)
class Rules:
    """How a table is declared. "partitions" means "diff" for a model without partitions."""

    policy: str
    lookback: int | None
    retain: Retain | None
    guard: Guard


@dataclass(frozen=True)
class Shape:
    """A table that the data source may have, and its model."""

    name: str
    columns: tuple[Col, ...]
    partitioning: Partitioning | None
    rules: Rules

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.role == "key")

    def model(self) -> Model:
        return Model(self.name, Content(self.columns), self.partitioning, self.keys)

    def table(self, rules: Rules) -> Table:
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
                return ReplaceAll()
            case _:
                return Diff(self.keys)

    def _lookback(self, lookback: int | None) -> int | str | None:
        (type_,) = (column.type for column in self.columns if column.name == "cursor")
        if lookback is None or type_ in ("string", "boolean"):
            return None
        return f"{lookback} days" if type_ in MOMENTS else lookback


@dataclass(frozen=True)
class Scenario:
    """The facts that stay the same during a history.

    Attributes:
        quirks: this server's behaviour where Tableau's documentation leaves it open.
        admin: the pipeline's user is an administrator, and may list jobs.
        slow: jobs wait and run for minutes.
        client_ahead: seconds by which the pipeline's clock is ahead of the server's.
        short: the journal keeps only a few old records.
        scripts: every second refresh runs in a script, whose end Dagster does not notice.
        lags: listings of the journal's store may lack the newest objects.
        store_seconds: the duration of a request to the journal's store.
        shapes: the tables that the data source may have.
        tables: the number of shapes that are declared at first.
        chain: the third table belongs to the second, not to the first.
        forgetful: feeds name only the keys of the last change.
        settings: other keys of the declaration.
    """

    quirks: Mapping[str, Any]
    admin: bool
    slow: bool
    client_ahead: float
    short: bool
    scripts: bool
    lags: bool
    store_seconds: float
    shapes: tuple[Shape, ...] = field(repr=False)
    tables: int
    chain: bool
    forgetful: bool
    settings: Mapping[str, Any]

    def declaration(self) -> Declaration:
        return Declaration(
            key=KEY,
            name="Stateful",
            project="Default",
            **related(self.all_tables, self.tables, chain=self.chain),
            **{"reconcile": None, **self.settings},
        )

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """The tables of all shapes, as declared at first."""
        return tuple(shape.table(shape.rules) for shape in self.shapes)


def scenario(chance: Random) -> Scenario:
    """Draw a scenario."""
    tables = shapes(chance)
    drawn = Scenario(
        quirks=quirks(chance),
        admin=chance.random() < 0.7,
        slow=chance.random() < 0.3,
        client_ahead=chance.choice([0, 0, 300, -300, 7200]),
        short=chance.random() < 0.5,
        scripts=chance.random() < 0.3,
        lags=chance.random() < 0.3,
        store_seconds=chance.choice([0, 0, 0.05]),
        shapes=tables,
        tables=chance.choice([1, 1, 2, 3]),
        chain=chance.random() < 0.5,
        forgetful=chance.random() < 0.5,
        settings={
            "on_schema_change": chance.choice(["additive", "publish", "refuse"]),
            # The growth is mostly large: with such small tables, a payload is as large as a file.
            "republish": Republish(
                growth=chance.choice([1.0, 50.0, 50.0, 50.0, 50.0]),
                after=chance.choice([None, None, None, 2]),
            ),
            "on_oversize": chance.choice(["publish", "split"]),
            "payload_limit_mb": chance.choice([*[None] * 7, 1e-6, *_LIMITS]),
            "reconcile": chance.choice(
                [
                    *[None] * 4,
                    Reconcile(by="download"),
                    *[Reconcile(checksums=True)] * 2,
                    *[Reconcile(), LARGE, replace(LARGE, checksums=True)],
                ]
            ),
        },
    )
    if not drawn.admin:
        return drawn
    certify = chance.random() < 0.4 and drawn.settings["reconcile"]
    about: dict[str, Any] = {"certify": "after_reconcile" if certify else None}
    about["owner"] = chance.choice([None, "boss"])
    about["permissions"] = chance.choice([(), (Permission("All Users", CAPABILITIES),)])
    return replace(drawn, settings={**drawn.settings, **about})


def with_change_limits(scenario: Scenario, chance: Random) -> Scenario:
    """In some histories, limit the share of rows that one refresh may change, for each table."""
    if chance.random() >= _LIMITED:
        return scenario
    shapes = []
    for shape in scenario.shapes:
        guard = replace(shape.rules.guard, max_change=chance.choice([0.0, 0.3, 0.3, 1.0]))
        shapes.append(replace(shape, rules=replace(shape.rules, guard=guard)))
    return replace(scenario, shapes=tuple(shapes))


def quirks(chance: Random) -> dict[str, Any]:
    """Draw a value of each quirk, mostly the default."""
    chosen, hints = {}, get_type_hints(Quirks)
    for quirk in fields(Quirks):
        if quirk.name in ("packages", "publisher_owns", "block_numbers"):
            # These quirks keep their defaults. Without `packages`, the server refuses all declared
            # fields. With `publisher_owns`, a refresh may be unable to give a data source back to
            # its owner.
            continue
        usual, hint = quirk.default, hints[quirk.name]
        if quirk.name == "late_stamp_seconds":
            chosen[quirk.name] = chance.choice([1, 2, 3, 8])
        elif quirk.name == "index_lag_seconds":
            chosen[quirk.name] = chance.choice([0, 0, 0, 2, 9, 30])
        elif isinstance(usual, bool):
            chosen[quirk.name] = chance.choice([usual, usual, not usual])
        else:
            # Enumerations have members, and literals have arguments.
            values = get_args(hint) or tuple(hint)
            chosen[quirk.name] = chance.choice([usual, usual, usual, *values])
    return chosen


def related(tables: Sequence[Table], count: int, *, chain: bool) -> dict[str, Any]:
    """The keys that declare the first `count` tables, as a star or as a chain."""
    names = [table.name for table in tables]
    edges = [
        Relationship(names[number - 1 if chain else 0], name, ((f"to_{name}", "k"),))
        for number, name in enumerate(names)
        if number
    ]
    return {"tables": tuple(tables[:count]), "relationships": tuple(edges[: count - 1])}


def rules(chance: Random) -> Rules:
    """Draw how a table is declared."""
    retain = Retain(
        column=chance.choice(["moment", "cursor", "part", "moment"]),
        days=chance.randint(1, 6),
        as_of=chance.choice(["run", "max"]),
    )
    return Rules(
        policy=chance.choice(_POLICIES),
        lookback=chance.choice([None, 0, 1, 2]),
        retain=chance.choice([None, retain]),
        guard=chance.choice([OPEN, OPEN, OPEN, Guard(), Guard(0, 0.3)]),
    )


def shapes(chance: Random) -> tuple[Shape, ...]:
    """Draw three tables. The second and the third can be on the "one" side of a relationship."""
    facts = _columns(chance, single=False)
    dimensions = [_columns(chance, single=True) for _ in range(2)]
    references = [
        Col(f"to_t{number}", columns[0][0].type, "reference")
        for number, columns in enumerate(dimensions, 2)
    ]
    facts[0].extend(references)
    dimensions[0][0].append(references[1])
    return tuple(
        Shape(f"t{number}", tuple(columns), partitioning, rules(chance))
        for number, (columns, partitioning) in enumerate([facts, *dimensions], 1)
    )


def _columns(chance: Random, *, single: bool) -> tuple[list[Col], Partitioning | None]:
    has_two_keys = not single and chance.random() < 0.25
    columns = [Col("k", chance.choice(KEYS), "key", step=2 if has_two_keys else 1)]
    if has_two_keys:
        columns.append(Col("l", chance.choice(TYPES), "key", cycle=2))
    columns.append(Col("cursor", chance.choice(KEYS), "cursor", step=2))
    columns.append(Col("moment", chance.choice(MOMENTS), "moment"))
    partitioning = chance.choice([None, chance.choice(PARTITIONINGS)])
    if partitioning:
        columns.append(Col("part", partitioning.type, "part"))
    types = [chance.choice(TYPES) for _ in range(chance.choice([1, 2]))]
    columns += [Col(f"v{number}", type_) for number, type_ in enumerate(types)]
    return columns, partitioning

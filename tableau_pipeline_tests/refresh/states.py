"""Plain values to plan with: no server, no files."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tableau_pipeline.core.checkpoint import State, TableState
from tableau_pipeline.core.declaration import Declaration, Guard, Table
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.refresh.plan import Accept, Options, Plan, View, plan

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
COLUMNS = (Column("id", "bigint"), Column("name", "string"))
GUARD = Guard(min_rows=1, max_shrink=0.5)


def declaration(*tables: str, guard: Guard = GUARD, **more: Any) -> Declaration:
    return Declaration(
        **{
            "key": "sales",
            "name": "Sales",
            "project": "Curated",
            "tables": tuple(Table(name, f"dbt/{name}", guard) for name in tables or ("orders",)),
            **more,
        }
    )


def table(rows: int = 100, *, hash_sum: int = 7, columns: tuple[Column, ...] = COLUMNS) -> Any:
    content = Fingerprint(rows=rows, hash_sum=hash_sum)
    return TableState(
        columns=columns,
        folders=(Path("snapshots/orders/v-1"),),
        model=content,
        content=content,
    )


def state(declared: Declaration | None = None, **changes: Any) -> State:
    """What a refresh left, or, with `luid=None` and so on, what one wants to leave."""
    declared = declared or declaration()
    return State(
        **{
            "server": "http://tableau",
            "site": "",
            "project": declared.project,
            "name": declared.name,
            "luid": "luid-1",
            "updated_at": NOON,
            "declaration": declared.digest(),
            "tables": {each.name: table() for each in declared.tables},
            "metadata": "digest-1",
            **changes,
        }
    )


def desired(declared: Declaration | None = None, **changes: Any) -> State:
    """What a refresh wants to leave: it does not know yet what the server will say."""
    return state(declared, **{"luid": None, "updated_at": None, "metadata": None, **changes})


REMOTE = RemoteDatasource(
    luid="luid-1",
    name="Sales",
    project_id="project-1",
    owner_id="user-1",
    updated_at=NOON,
    tags=frozenset({"tableau-pipeline:sales"}),
    link=None,
)
NOTHING = View(bases=(), why_no_base="the journal is empty", remote=None, named_by_us=False)


def view(*bases: State, **changes: Any) -> View:
    """What the server holds after a refresh that went well, unless `changes` say otherwise."""
    known = View(
        bases=bases or (state(),),
        why_no_base="",
        remote=REMOTE,
        named_by_us=True,
        metadata="digest-1",
    )
    return replace(known, **changes)


def decide(
    known: View,
    *accept: Accept,
    wanted: State | None = None,
    declared: Declaration | None = None,
    full: bool = False,
) -> Plan:
    """The plan for a data source of one table whose content is `wanted`."""
    declared = declared or declaration()
    options = Options(full=full, accept=frozenset(accept))
    return plan(declared, wanted or desired(declared), known, options)

"""Plain values to decide with: no server, no files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration, Guard, Table
from tableau_pipeline.core.server import Metadata, RemoteDatasource
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.extracts.delta import RowCounts, Size
from tableau_pipeline.hyper.tables import Column, Relationship
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.plan import (
    Accept,
    Changed,
    Facts,
    Options,
    Plan,
    by_size,
    decide,
)

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
COLUMNS = (Column("id", "bigint"), Column("name", "string"))
GUARD = Guard(min_rows=1, max_shrink=0.5)
ON_ID = (("id", "id"),)
OURS = frozenset({"tableau-pipeline:sales", "tableau-pipeline-instance:here"})
REMOTE = RemoteDatasource(
    luid="luid-1",
    name="Sales",
    project_id="project-1",
    owner_id="user-1",
    created_at=NOON,
    updated_at=NOON,
    revision=1,
    megabytes=1,
    tags=OURS,
    link=None,
)
NOTHING = Base(remote=None)
# One row for another in each table that changes, by a payload that is small enough for anything.
SMALL = Size(counts={}, size=1, limit=1000, pieces=0)


def declaration(*tables: str, guard: Guard = GUARD, **more: Any) -> Declaration:
    names = tables or ("orders",)
    return Declaration(
        **{
            "key": "sales",
            "name": "Sales",
            "project": "Curated",
            "tables": tuple(Table(name, f"dbt/{name}", guard=guard) for name in names),
            "relationships": tuple(Relationship(names[0], one, ON_ID) for one in names[1:]),
            "reconcile": None,
            **more,
        }
    )


def table(
    rows: int = 100, *, hash_sum: int = 7, columns: tuple[Column, ...] = COLUMNS, **more: Any
) -> TableContent:
    content = Fingerprint(rows=rows, hash_sum=hash_sum)
    usual = {"model": "dbt/orders", "version": 1, "all_rows": content, "content": content}
    return TableContent(**usual | {"columns": columns} | more)


def desired(declared: Declaration | None = None, **tables: TableContent) -> dict[str, TableContent]:
    """What the tables of a declaration are to hold: what they hold, or what is given."""
    names = [each.name for each in (declared or declaration()).tables]
    return {name: table() for name in names} | tables


def checkpoint(declared: Declaration | None = None, **changes: Any) -> Checkpoint:
    """What a refresh left."""
    declared = declared or declaration()
    return Checkpoint(
        **{
            "refresh": 1,
            "server": "http://tableau",
            "site": "",
            "project": declared.project_path,
            "name": declared.name,
            "luid": "luid-1",
            "updated_at": NOON,
            "revision": 1,
            "declaration": declared.digest(),
            "tables": desired(declared),
            "metadata": "digest-1",
            **changes,
        }
    )


def metadata(
    digest: str = "digest-1", columns: frozenset[tuple[str, str]] | None = None
) -> Metadata:
    return Metadata(digest, columns)


def published(record: Checkpoint | None = None, **changes: Any) -> Base:
    """What the server holds after a refresh that went well, unless `changes` say otherwise."""
    record = record or checkpoint()
    known = Base(
        remote=REMOTE,
        is_ours=True,
        checkpoint=record,
        rows=record.rows,
        metadata=metadata(),
        left=frozenset({record.metadata} if record.metadata else ()),
    )
    return replace(known, **changes)


def decided(
    known: Base,
    *accept: Accept,
    wanted: Mapping[str, TableContent] | None = None,
    declared: Declaration | None = None,
    full: bool = False,
    size: Size = SMALL,
    layout: Sequence[str] = (),
) -> Plan:
    """The decision for a data source whose content is to be `wanted`.

    Args:
        size: what the delta measures, where that is asked for.
        layout: in what the tables of a data source to take over differ.
    """
    declared = declared or declaration()
    wanted = desired(declared) if wanted is None else wanted
    facts = Facts(declared, declared.digest(), wanted, known, differences=layout)
    plan = decide(facts, Options(full=full, accept=frozenset(accept)))
    if not isinstance(plan, Changed):
        return plan
    counts = {name: size.counts.get(name, RowCounts(1, 1)) for name in plan.tables}
    return by_size(declared, plan, replace(size, counts=counts))

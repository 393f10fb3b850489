"""Plain values for records, without a server or files."""

from datetime import UTC, datetime
from typing import Any

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.hyper.types import Column

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def table(*, model: str = "dbt/orders", version: int = 1) -> TableContent:
    """A table of 100 rows."""
    content = Fingerprint(rows=100, hash_sum=7)
    columns = (Column("id", "bigint"), Column("name", "string"))
    return TableContent(
        model=model, version=version, columns=columns, all_rows=content, content=content
    )


def checkpoint(**changes: Any) -> Checkpoint:
    """The checkpoint that a refresh left."""
    usual = {"refresh": 1, "server": "http://tableau", "site": "", "project": "Curated"}
    usual |= {"name": "Sales", "luid": "luid-1", "updated_at": NOON, "revision": 1}
    usual |= {"declaration": "digest", "tables": {"orders": table()}, "metadata": "digest-1"}
    return Checkpoint.model_validate(usual | changes)

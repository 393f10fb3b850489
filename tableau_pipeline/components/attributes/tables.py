"""The YAML keys of a table and of a relationship. Every error names its key."""

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from tableau_pipeline.components.attributes.base import Attributes, mistake
from tableau_pipeline.components.attributes.lake_tables import LakeAttributes
from tableau_pipeline.components.attributes.refresh_policies import (
    PartitionsRefresh,
    Refresh,
    policy,
)
from tableau_pipeline.core.declaration import Guard, Table
from tableau_pipeline.core.policies import Retain
from tableau_pipeline.extracts.validate.contract import spark_name
from tableau_pipeline.hyper.tables import Column


class GuardAttributes(Attributes):
    """The conditions that a table must meet before it is published."""

    min_rows: int = Field(
        default=1, ge=0, description="The refresh is refused if the table has fewer rows."
    )
    max_shrink: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="The largest share of the published rows that one refresh may remove.",
    )


class RetainAttributes(Attributes):
    """A rolling window: rows older than `days` are not published."""

    column: str = Field(description="A date or timestamp column. Rows where it is NULL are kept.")
    days: int = Field(gt=0, description="Rows older than this many days are not published.")
    as_of: Literal["run", "max"] = Field(
        default="run",
        description="Count the days from today (UTC), or from the latest value in the model.",
    )


class TableAttributes(Attributes):
    """One table of the data source."""

    model: str | None = Field(
        default=None,
        description='Asset key of the model, "a/b" for two parts. Default: the table\'s name.',
    )
    source: LakeAttributes | None = Field(
        default=None,
        description="A table of a lake that is the model, read where it is: {delta: /lake/orders} "
        "or {iceberg: {catalog: prod, table: db.orders}}. Default: an asset that Spark writes is "
        "the model.",
    )
    refresh: Refresh = Field(
        default="replace",
        description="Which rows a refresh sends. replace: the whole table. {diff: {key: [...]}}: "
        "the rows that differ. {append: {cursor: ...}}: the rows from the last published one on. "
        "{partitions: {column: ...}}: the partitions that changed.",
    )
    retain: RetainAttributes | None = Field(
        default=None, description="A rolling window. Older rows are not published."
    )
    guard: GuardAttributes = Field(
        default_factory=GuardAttributes,
        description="The conditions that the table must meet before it is published.",
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="The contract: the model must have exactly these columns, by name and Spark "
        "type. Default: any columns.",
    )

    @model_validator(mode="after")
    def _no_partitions_of_a_lake(self) -> Self:
        if self.source and isinstance(self.refresh, PartitionsRefresh):
            raise mistake(
                ("refresh",),
                "partitions",
                "a table of a lake has no Dagster partitions: use {diff: {key: [...]}}, which "
                "compares only the files that changed",
            )
        return self

    def to_domain(self, name: str) -> Table:
        """Convert these keys to the core's `Table` with this name."""
        return Table(
            name=name,
            model=self.model or name,
            guard=Guard(self.guard.min_rows, self.guard.max_shrink),
            policy=policy(self.refresh),
            retain=Retain(**self.retain.model_dump()) if self.retain else None,
            columns=tuple(Column(name, spark_name(type_)) for name, type_ in self.columns.items()),
            source=self.source.to_domain() if self.source else None,
        )


def _allow_bare_on(schema: dict[str, Any]) -> None:
    """Make the schema accept a bare `on`, which YAML 1.1 reads as true; pydantic checks it."""
    schema["additionalProperties"] = True
    schema["required"].remove("on")


class RelationshipAttributes(Attributes):
    """A many-to-one relationship: many rows of `from` refer to one row of `to`."""

    model_config = ConfigDict(json_schema_extra=_allow_bare_on)

    many: str = Field(alias="from", description="Table of the many side.")
    one: str = Field(alias="to", description="Table of the one side.")
    on: dict[str, str] = Field(
        min_length=1, description="For each column of the key, column of `from`: column of `to`."
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_on(cls, keys: Any) -> Any:
        if isinstance(keys, dict) and True in keys:
            return {"on" if key is True else key: value for key, value in keys.items()}
        return keys

"""A table of a lake as it is declared."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.keys import keyed
from tableau_pipeline.objects.stores import is_url

LakeFormat = Literal["delta", "iceberg"]


def _with_namespace(table: str) -> str:
    if "." not in table or not all(table.split(".")):
        raise ValueError(f'"{table}" is not a namespace and a name, such as db.orders')
    return table


@keyed
class InCatalog:
    """A table of an Iceberg catalog."""

    catalog: str = Field(
        min_length=1,
        description="Name of the catalog in the configuration of pyiceberg: .pyiceberg.yaml, or "
        "variables such as PYICEBERG_CATALOG__PROD__URI.",
    )
    table: Annotated[str, AfterValidator(_with_namespace)] = Field(
        description="Name of the table in the catalog: db.orders."
    )

    def __str__(self) -> str:
        return f"{self.table} of the catalog {self.catalog}"


def _in_catalog(table: Any) -> Any:
    if isinstance(table, str):
        raise ValueError(
            f'"{table}" names no catalog, which alone knows the current version of an Iceberg '
            "table: write {catalog: prod, table: db.orders}"
        )
    return table


_LAKES = "source is {delta: /lake/orders}, or {iceberg: {catalog: prod, table: db.orders}}"


@keyed
class LakeTable:
    """A table of a lake, which is read where it is."""

    delta: str | None = Field(
        default=None,
        description="Absolute path of the folder of a Delta table, or its URL in an object store.",
    )
    iceberg: Annotated[
        InCatalog | None,
        BeforeValidator(_in_catalog, json_schema_input_type=InCatalog | None),
    ] = Field(default=None, description="An Iceberg table, by its catalog.")

    @model_validator(mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        if value is None or isinstance(value, str | list):
            raise ValueError(f"{_LAKES}; not {value!r}")
        return value

    @model_validator(mode="after")
    def _one_table(self) -> Self:
        if bool(self.delta) == bool(self.iceberg):
            raise ValueError(_LAKES)
        if self.delta:
            try:
                known = is_url(self.delta, setting="source") or self.delta.startswith("/")
            except RefusedError as error:
                raise ValueError(str(error)) from None
            if not known:
                raise ValueError(
                    f'"{self.delta}" is neither an absolute path, such as /lake/orders, nor a URL, '
                    "such as s3://lake/orders"
                )
        return self

    @property
    def format(self) -> LakeFormat:
        """The format of the table."""
        return "delta" if self.delta else "iceberg"

    @property
    def location(self) -> str | InCatalog:
        """Where it is: a path or URL without a slash at its end, or a table of a catalog."""
        if self.iceberg:
            return self.iceberg
        where = self.delta or ""
        return where.rstrip("/") if "://" in where else str(PurePosixPath(where))

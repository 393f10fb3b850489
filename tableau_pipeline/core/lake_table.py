"""The declaration of a lake table: a Delta or Iceberg table that serves as a model."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, model_validator

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects.stores import is_url
from tableau_pipeline.yaml_keys import keyed

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
        description="Catalog in the configuration of pyiceberg.",
    )
    table: Annotated[str, AfterValidator(_with_namespace)] = Field(
        description="Table in the catalog, such as db.orders."
    )

    def __str__(self) -> str:
        return f"{self.table} of the catalog {self.catalog}"


_in_catalog = TypeAdapter(InCatalog).validate_python
_LAKES = (
    "source is one of: {delta: /lake/orders}; {iceberg: {catalog: prod, table: db.orders}}; "
    "{iceberg: s3://lake/orders}"
)


@keyed
class LakeTable:
    """A lake table. Refreshes read it where it is, without a copy."""

    delta: str | None = Field(
        default=None,
        description="Absolute path of a Delta table's folder, or its URL in an object store.",
    )
    iceberg: Annotated[
        str | InCatalog | None,
        BeforeValidator(
            lambda table: _in_catalog(table) if isinstance(table, dict) else table,
            json_schema_input_type=str | InCatalog | None,
        ),
    ] = Field(
        default=None,
        description="An Iceberg table in a catalog. Without a catalog: the absolute path of the "
        "table's folder, or its URL.",
    )

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
        if isinstance(location := self.location, str):
            try:
                is_valid = is_url(location, setting="source") or location.startswith("/")
            except RefusedError as error:
                raise ValueError(str(error)) from None
            if not is_valid:
                raise ValueError(
                    f'"{location}" is neither an absolute path, such as /lake/orders, nor a URL, '
                    "such as s3://lake/orders"
                )
        return self

    @property
    def format(self) -> LakeFormat:
        """The format of the table."""
        return "delta" if self.delta else "iceberg"

    @property
    def location(self) -> str | InCatalog:
        """The location: a path or URL without a trailing slash, or a table of a catalog."""
        where = self.delta or self.iceberg or ""
        if isinstance(where, InCatalog):
            return where
        return where.rstrip("/") if "://" in where else str(PurePosixPath(where))

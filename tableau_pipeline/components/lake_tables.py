"""The key `source` of a table: a table of a lake that is its model."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from tableau_pipeline.components.mistakes import Attributes, keys
from tableau_pipeline.core.declaration import InCatalog, LakeTable
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake.files import in_store

_FORMS = (
    "source is one of: {delta: /lake/orders}; {iceberg: {catalog: prod, table: db.orders}}; "
    "{iceberg: s3://lake/orders}"
)


class CatalogAttributes(Attributes):
    """A table of an Iceberg catalog."""

    catalog: str = Field(
        min_length=1,
        description="Name of the catalog in the configuration of pyiceberg: .pyiceberg.yaml, or "
        "variables such as PYICEBERG_CATALOG__PROD__URI.",
    )
    table: str = Field(description="Name of the table in the catalog: db.orders.")

    @field_validator("table")
    @classmethod
    def _has_namespace(cls, table: str) -> str:
        is_name = "." in table and all(table.split("."))
        # A template is validated again after Dagster has filled it in.
        if not is_name and "{{" not in table:
            raise ValueError(f'"{table}" is not a namespace and a name, such as db.orders')
        return table


def _form(value: Any) -> str:
    return "catalog" if keys(value) else "path"


class LakeAttributes(Attributes):
    """A table of a lake, which is read where it is."""

    delta: str | None = Field(
        default=None,
        description="Absolute path of the folder of a Delta table, or its URL in an object store.",
    )
    iceberg: (
        Annotated[
            Annotated[str, Tag("path")] | Annotated[CatalogAttributes, Tag("catalog")],
            Discriminator(_form),
        ]
        | None
    ) = Field(
        default=None,
        description="{catalog: ..., table: ...}: an Iceberg table by its catalog. If it has none, "
        "the absolute path of its folder, or its URL in an object store.",
    )

    @model_validator(mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        if not keys(value):
            raise ValueError(f"{_FORMS}; not {value!r}")
        return value

    @model_validator(mode="after")
    def _one_table(self) -> Self:
        found = [each for each in (self.delta, self.iceberg) if each is not None]
        if len(found) != 1:
            raise ValueError(_FORMS)
        # A template is validated again after Dagster has filled it in.
        if isinstance(found[0], str) and "{{" not in found[0]:
            _check(found[0])
        return self

    def to_domain(self) -> LakeTable:
        """Convert these keys to the core's `LakeTable`."""
        match self.iceberg:
            case CatalogAttributes(catalog=catalog, table=table):
                return LakeTable("iceberg", InCatalog(catalog, table))
            case str(location):
                return LakeTable("iceberg", _normal(location))
            case _:
                return LakeTable("delta", _normal(self.delta or ""))


def _check(location: str) -> None:
    try:
        is_known = in_store(location) or PurePosixPath(location).is_absolute()
    except RefusedError as error:
        raise ValueError(str(error)) from None
    if not is_known:
        raise ValueError(
            f'"{location}" is neither an absolute path, such as /lake/orders, nor a URL, such as '
            "s3://lake/orders"
        )


def _normal(location: str) -> str:
    return location.rstrip("/") if in_store(location) else str(PurePosixPath(location))

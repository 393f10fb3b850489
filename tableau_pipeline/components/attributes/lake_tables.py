"""The key `source` of a table: a table of a lake that is its model."""

from pathlib import PurePosixPath
from typing import Any, Self

from pydantic import Field, model_validator

from tableau_pipeline.components.attributes.base import Attributes, keys
from tableau_pipeline.core.declaration import LakeTable
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake.locations import in_store

_FORMS = "source is one of: {delta: /lake/orders}; {iceberg: s3://lake/orders}"


class LakeAttributes(Attributes):
    """A table of a lake, which is read where it is."""

    delta: str | None = Field(
        default=None,
        description="Absolute path of the folder of a Delta table, or its URL in an object store.",
    )
    iceberg: str | None = Field(
        default=None,
        description="Absolute path of the folder of an Iceberg table, or its URL in an object "
        "store.",
    )

    @model_validator(mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        if not keys(value):
            raise ValueError(f"{_FORMS}; not {value!r}")
        return value

    @model_validator(mode="after")
    def _one_table(self) -> Self:
        paths = [path for path in (self.delta, self.iceberg) if path is not None]
        if len(paths) != 1:
            raise ValueError(_FORMS)
        # A template is validated again after Dagster has filled it in.
        if "{{" not in paths[0]:
            _check(paths[0])
        return self

    def to_domain(self) -> LakeTable:
        """Convert these keys to the core's `LakeTable`."""
        if self.delta is not None:
            return LakeTable("delta", _normal(self.delta))
        return LakeTable("iceberg", _normal(self.iceberg or ""))


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

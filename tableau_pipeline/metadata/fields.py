"""The YAML values of fields, and what they ask for."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.keys import keyed, written_as
from tableau_pipeline.metadata.merge import OnConflict, Values

Role = Literal["dimension", "measure"]


class FieldError(RefusedError):
    """The declaration names a field that does not exist, or contradicts itself.

    Attributes:
        at: the keys in YAML where it does.
    """

    def __init__(self, at: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.at = at


@keyed
class FieldMetadata:
    """What Tableau shows of a column."""

    # In YAML, it is the key that holds the field.
    name: SkipJsonSchema[str] = ""
    caption: str = ""
    description: str = ""
    format: str = ""
    role: Role | None = None
    aggregation: str = ""
    hidden: bool = False
    folder: str = ""


@keyed
class Calculation:
    """A calculated field."""

    name: SkipJsonSchema[str] = ""
    formula: str = ""


@keyed
class Members:
    """Fields under a name: a hierarchy, from its top down, or a folder."""

    name: SkipJsonSchema[str] = ""
    fields: tuple[str, ...] = ()


@keyed
class MetadataPolicy:
    """What becomes of metadata that both the declaration and a person changed."""

    on_conflict: OnConflict = Field(default="keep")


def wanted(
    *,
    fields: Mapping[str, Sequence[FieldMetadata]],
    calculations: Sequence[Calculation],
    hierarchies: Sequence[Members],
    folders: Sequence[Members],
    columns: Mapping[str, Sequence[str]],
    descriptions: Mapping[tuple[str, str], str],
) -> Values:
    """Return the values that a declaration asks for, by the tables' names in the file.

    `Declaration.wanted(columns, descriptions)` calls it, with the tables' declared names.

    Args:
        columns: all columns of each table.
        descriptions: inherited ones, by table and column; a declared one beats them.

    Raises:
        FieldError: a field is unknown or ambiguous, or two declarations contradict each other.
    """
    raise NotImplementedError

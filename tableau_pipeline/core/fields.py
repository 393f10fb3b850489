"""The declared metadata of fields, hierarchies and folders, and of the whole data source."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, replace
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.metadata.document import (
    bracketed,
    fault_in,
    field_name,
    fields_in,
    unbracketed,
    with_fields,
)
from tableau_pipeline.metadata.formats import fault_in_format, misfit, tableau_format
from tableau_pipeline.metadata.merge import (
    CERTIFIED,
    DESCRIPTION,
    NOTE,
    OWNER,
    FieldPath,
    OnConflict,
    Values,
)
from tableau_pipeline.outcome import Code
from tableau_pipeline.yaml_keys import NO_TEXT, guess, keyed, mistake, written_as

# The capabilities of data sources, by their names in Tableau's REST API.
Capability = Literal[
    "Read",
    "Connect",
    "ExportXml",
    "SaveAs",
    "Write",
    "VizqlDataApiAccess",
    "PulseMetricDefine",
    "ExtractRefresh",
    "ChangeHierarchy",
    "Delete",
    "ChangePermissions",
]
_LONGEST_TAG = 200


@keyed
class Permission:
    """The capabilities of a group for the data source."""

    group: str = Field(
        min_length=1,
        description='Group of the site, such as "All Users". If several domains have the group: '
        "example.com\\Analysts.",
    )
    allow: tuple[Capability, ...] = Field(
        description="Capabilities, by their names in the REST API. Tableau shows other names: "
        "View for Read, Download for ExportXml, Overwrite for Write, API Access for "
        "VizqlDataApiAccess, Move for ChangeHierarchy.",
    )


def _tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    for tag in tags:
        if not 0 < len(tag.strip()) <= _LONGEST_TAG:
            raise ValueError(f'"{tag}" is no tag: Tableau takes 1 to {_LONGEST_TAG} characters')
        if '"' in tag:
            raise ValueError(f"{tag} is no tag: Tableau splits a tag with quotes into several")
        if tag.startswith((TAG_PREFIX, INSTANCE_TAG_PREFIX)):
            raise ValueError(f'"{tag}" is reserved: pipelines mark their data sources with it')
    return tags


@keyed
class Properties:
    """The settings of the whole data source, not of its tables or fields."""

    _: KW_ONLY
    description: str | None = Field(
        default=None,
        description="Description in Tableau. A refresh adds the names of the models and, with "
        "PIPELINE_WEB_URL, a link to the asset. Default: left to people.",
    )
    owner: str | None = Field(
        default=None,
        min_length=1,
        description="User who owns the data source. If several domains have the user: "
        "example.com\\ann. Default: the owner stays; a new data source belongs to the pipeline's "
        "user.",
    )
    tags: Annotated[tuple[str, ...], AfterValidator(_tags)] = Field(
        default=(), description="Tags of the data source. Tags that people added stay."
    )
    certify: Literal["after_reconcile"] | None = Field(
        default=None,
        description="Certify the data source after a comparison has found its rows equal to the "
        "models. Withdraw the certification if they differ. Default: left to people.",
    )
    certification_note: str | None = Field(
        default=None, description="With `certify`: the note of the certification."
    )
    permissions: tuple[Permission, ...] = Field(
        default=(),
        description="Capabilities of groups, such as [{group: Analysts, allow: [Read, Connect]}]. "
        "All other permissions are left to people.",
    )
    quality_warning: bool = Field(
        default=False,
        description="Set a data quality warning while a refresh is refused or fails, or the data "
        "source is late. Needs Data Management and `TableauPipeline`.",
    )

    @model_validator(mode="after")
    def _about_is_consistent(self) -> Self:
        if self.certification_note and not self.certify:
            raise mistake(("certification_note",), "it needs certify: after_reconcile")
        groups = [permission.group for permission in self.permissions]
        for number, group in enumerate(groups):
            if group in groups[:number]:
                problem = f'group "{group}" is named before, too: write one list'
                raise mistake(("permissions", number), problem)
        return self

    def declared_properties(self, *, lineage: str, certified: bool) -> Values:
        """Return the declared values of the data source itself.

        Args:
            lineage: a text about the origin of the data source, which the description includes.
            certified: whether the data source may be certified now. The value counts only if the
                declaration has `certify`.
        """
        values: dict[FieldPath, str] = {}
        if self.description is not None:
            values[DESCRIPTION] = "\n\n".join(filter(None, (self.description.strip(), lineage)))
        if self.owner:
            values[OWNER] = self.owner
        if certified and self.certify:
            values[CERTIFIED] = "yes"
            values |= {NOTE: self.certification_note} if self.certification_note else {}
        values |= {("tag", tag): "yes" for tag in self.tags}
        for permission in self.permissions:
            values |= {("permission", permission.group, name): "Allow" for name in permission.allow}
        return values


Role = Literal["dimension", "measure"]
Aggregation = Literal[
    "sum",
    "avg",
    "min",
    "max",
    "median",
    "count",
    "countd",
    "stdev",
    "stdevp",
    "var",
    "varp",
    "attr",
]
DataType = Literal["real", "integer", "string", "boolean", "date", "datetime"]
# Maps aggregations to Tableau's names. For any other aggregation, Tableau's name is our name with a
# capital first letter.
_AGGREGATIONS = MappingProxyType({"countd": "CountD", "stdevp": "StdevP", "varp": "VarP"})

# Maps our names of geographic roles to the texts in `.tds` files of Tableau Desktop.
_GEOGRAPHIC_ROLES = MappingProxyType(
    {
        "country": "[Country].[Name]",
        "country code": "[Country].[ISO3166_2]",
        "state": "[State].[Name]",
        "county": "[County].[Name]",
        "city": "[City].[Name]",
        "postcode": "[ZipCode].[Name]",
        "latitude": "[Geographical].[Latitude]",
        "longitude": "[Geographical].[Longitude]",
    }
)
GeographicRole = Literal[
    "country", "country code", "state", "county", "city", "postcode", "latitude", "longitude"
]

_FORMAT = (
    'A number format, such as "#,##0.00" or "0.0%"; a date format, such as "yyyy-MM-dd"; or a '
    "format as Tableau itself writes it, such as 'c\"€\"#,##0'. Default: Tableau's."
)


def _known_format(text: str) -> str:
    if problem := fault_in_format(text):
        raise ValueError(f"{text!r}: {problem}. Put * before it to publish it unchecked")
    return text


@keyed
class _DisplaySettings:
    """How Tableau shows a field, which is a column or a calculation."""

    # In YAML, the name is the key above the field. The name of a calculation is also its caption.
    name: SkipJsonSchema[str] = ""
    description: str = Field(
        default="",
        description="Description that Tableau shows when people point at the field. Default: none.",
    )
    format: Annotated[str, AfterValidator(_known_format)] = Field(default="", description=_FORMAT)
    role: Role | None = Field(
        default=None, description="Default: measure for numbers, dimension for all else."
    )
    hidden: bool = Field(default=False, description="Do not show the field.")
    folder: str = Field(
        default="", description="The folder that contains the field. Default: none."
    )


@keyed
class FieldMetadata(_DisplaySettings):
    """How Tableau shows a column."""

    caption: str = Field(default="", description="The name that people see. Default: the column's.")
    aggregation: Aggregation | None = Field(
        default=None, description="How a measure is aggregated. Default: sum for numbers."
    )
    geo: GeographicRole | None = Field(
        default=None,
        description="The kind of place that the values name, for maps. A country code has the two "
        "letters of ISO 3166.",
    )


@keyed
class Calculation(_DisplaySettings):
    """A calculated field. Another user's field of the same name stays unchanged."""

    _: KW_ONLY
    formula: str = Field(
        min_length=1,
        description="A formula in Tableau's language. It may use columns (such as [net], or "
        "[orders.net] if there are several tables), captions, and other calculations.",
    )
    type: DataType = Field(default="real", description="The type of the calculation's values.")

    @model_validator(mode="after")
    def _has_a_format_of_its_type(self) -> Self:
        if problem := misfit(self.format, self.type):
            raise mistake(("format",), problem)
        return self


@keyed
class Members:
    """The fields of a hierarchy, from the top down, or of a folder."""

    name: SkipJsonSchema[str]
    fields: tuple[str, ...] = Field(min_length=1)


@keyed
class MetadataPolicy:
    """How to treat metadata that users have edited."""

    on_conflict: OnConflict = Field(
        default="keep",
        description="What to do if both the declaration and a person changed a value. keep: keep "
        "the person's value, and report both values. replace: replace the person's value. refuse: "
        "refuse the refresh. A value that only a person changed always stays.",
    )


def by_name(kind: Any) -> BeforeValidator:
    """Return a validator for named values. In YAML, the name is the key above the value."""
    return written_as(
        dict[str, kind],
        lambda values: tuple(replace(value, name=name) for name, value in values.items()),
    )


# A validator of hierarchies and folders. In YAML, their names are keys above lists of fields.
MEMBERS = written_as(
    dict[str, Annotated[list[str], Field(min_length=1)]],
    lambda lists: tuple(Members(name=name, fields=tuple(fields)) for name, fields in lists.items()),
)


class FieldError(RefusedError):
    """The declaration contradicts itself, or names a field that does not exist.

    Attributes:
        at: the nested keys in YAML at which the error is.
    """

    code = Code.DECLARATION

    def __init__(self, at: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.at = at


# Maps columns to the metadata that a data source takes from its models or from dbt. The keys are
# pairs (model, column), but pairs (table, column) in the argument of `declared_values`.
Inherited = Mapping[tuple[str, str], FieldMetadata]
NOT_INHERITED: Inherited = MappingProxyType({})


def declared_values(
    *,
    fields: Mapping[str, Sequence[FieldMetadata]],
    calculations: Sequence[Calculation],
    hierarchies: Sequence[Members],
    folders: Sequence[Members],
    columns: Mapping[str, Sequence[str]],
    published: Callable[[str], str],
    inherited: Inherited = NOT_INHERITED,
) -> Values:
    """Convert declared metadata to values. `Declaration.declared_values` passes the arguments.

    Args:
        columns: all columns of each table.
        published: returns the name of a declared table in the file.
        inherited: metadata of the models. A declared value takes precedence over an inherited
            value.

    Raises:
        FieldError: a field is unknown or ambiguous, or two declarations contradict each other.
    """
    names = _FieldNames(columns, published, fields, calculations)
    values: dict[FieldPath, str] = {}
    for (table, column), inherited_field in inherited.items():
        if column in columns.get(table, ()):
            values |= _field_values(("field", published(table), column), inherited_field)
    for table, declared in fields.items():
        for field in declared:
            values |= _field_values(("field", published(table), field.name), field)
    for calculation in calculations:
        name, path = calculation.name, ("calculation", calculation.name)
        formula = names.translated(calculation.formula, ("calculations", name, "formula"))
        values |= _field_values(path, calculation)
        values |= {(*path, "caption"): name, (*path, "formula"): formula}
    _check_cycles(names, calculations)
    members: dict[str, Sequence[FieldPath]] = {}
    for hierarchy in hierarchies:
        at = ("hierarchies", hierarchy.name)
        members[hierarchy.name] = [names.path(member, at) for member in hierarchy.fields]
        shown = [names.shown(path) for path in members[hierarchy.name]]
        values["hierarchy", hierarchy.name, "fields"] = json.dumps(shown, ensure_ascii=False)
    _put_into_folders(values, folders, names)
    clean = {path: NO_TEXT.sub("", value).strip() for path, value in values.items()}
    _check_names(clean, columns, published, calculations)
    return _with_folders({path: value for path, value in clean.items() if value}, members)


def _put_into_folders(
    values: dict[FieldPath, str], folders: Sequence[Members], names: "_FieldNames"
) -> None:
    """Add the folder of each listed field to `values`."""
    for folder in folders:
        at = ("folders", folder.name)
        for member in folder.fields:
            path = (*names.path(member, at), "folder")
            if other := values.get(path):
                problem = f'"{member}" is in the folder "{other}", too: a field has one folder'
                raise FieldError(at, problem)
            values[path] = folder.name


def _with_folders(values: Values, hierarchies: Mapping[str, Sequence[FieldPath]]) -> Values:
    """If one field of a hierarchy has a folder, put all fields of the hierarchy into this folder.

    Tableau puts a hierarchy into a folder as a whole.
    """
    completed = dict(values)
    # Hierarchies may share fields, so a folder may pass from hierarchy to hierarchy. As many rounds
    # as there are hierarchies suffice.
    for name, fields in [*hierarchies.items()] * len(hierarchies):
        paths = [(*path, "folder") for path in fields]
        folders = {completed[path]: path for path in paths if path in completed}
        if len(folders) > 1:
            listed = ", ".join(f'"{path[-2]}" is in "{folder}"' for folder, path in folders.items())
            problem = f"Tableau shows a hierarchy in one folder, but {listed}"
            raise FieldError(("hierarchies", name), problem)
        completed |= {path: folder for folder in folders for path in paths}
    return completed


def _field_values(path: FieldPath, declared: FieldMetadata | Calculation) -> dict[FieldPath, str]:
    """Map paths to the declared values of a field."""
    parts = {
        "description": declared.description,
        "format": tableau_format(declared.format),
        "role": declared.role or "",
        "hidden": "true" if declared.hidden else "",
        "folder": declared.folder,
    }
    if isinstance(declared, Calculation):
        parts["type"] = declared.type
    else:
        given = declared.aggregation or ""
        parts["caption"] = declared.caption
        parts["aggregation"] = _AGGREGATIONS.get(given, given.capitalize())
        parts["geo"] = _GEOGRAPHIC_ROLES[declared.geo] if declared.geo else ""
    return {(*path, part): value for part, value in parts.items() if value}


def _check_names(
    values: Values,
    columns: Mapping[str, Sequence[str]],
    published: Callable[[str], str],
    calculations: Sequence[Calculation],
) -> None:
    """Check that each caption differs from all other names that users see.

    Users see the caption of a column, or its name if it has no caption. The name of a calculation
    is also its caption.
    """
    shown: dict[str, str] = {}
    captions: list[tuple[str, str, tuple[str, ...]]] = []
    for calculation in calculations:
        name = calculation.name
        caption = values["calculation", name, "caption"]
        captions.append((caption, f'the calculation "{name}"', ("calculations", name)))
    for table, listed in columns.items():
        for column in listed:
            what = f"{table}.{column}"
            if caption := values.get(("field", published(table), column, "caption")):
                captions.append((caption, what, ("tables", table, "fields", column, "caption")))
            else:
                # Columns of several tables may share a name, because Tableau shows the table with
                # the name.
                shown.setdefault(column, what)
    for caption, what, at in captions:
        if caption in shown:
            problem = f'{what} has the name "{caption}", which {shown[caption]} has, too: '
            raise FieldError(at, f"{problem}give one of them another `caption` or name")
        shown[caption] = what


def _check_cycles(names: "_FieldNames", calculations: Sequence[Calculation]) -> None:
    """Check that no calculation uses itself, directly or through other calculations."""
    uses = {
        calculation.name: names.calculations_in(calculation.formula) for calculation in calculations
    }
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        cycle = error.args[1][:0:-1]
        first = cycle.index(min(cycle))
        listed = ", ".join([*cycle[first:], *cycle[: first + 1]])
        problem = f"it uses itself ({listed}): let one of them use columns alone"
        raise FieldError(("calculations", cycle[first], "formula"), problem) from None


def _check_is_column(table: str, field: FieldMetadata, columns: Sequence[str]) -> None:
    if field.name not in columns:
        problem = f'"{field.name}" is not a column of the table "{table}": '
        problem += f"{guess(field.name, columns)}Its columns are {', '.join(columns)}"
        raise FieldError(("tables", table, "fields", field.name), problem)


class _FieldNames:
    """Resolves the names of fields in formulas, hierarchies and folders."""

    def __init__(
        self,
        columns: Mapping[str, Sequence[str]],
        published: Callable[[str], str],
        fields: Mapping[str, Sequence[FieldMetadata]],
        calculations: Sequence[Calculation],
    ) -> None:
        self._single = len(columns) == 1
        self._paths: dict[str, list[FieldPath]] = defaultdict(list)
        for table, table_columns in columns.items():
            for column in table_columns:
                for name in (f"{table}.{column}", column):
                    self._paths[name].append(("field", published(table), column))
        for calculation in calculations:
            if calculation.name in self._paths:
                problem = (
                    f'a column is named "{calculation.name}": give the calculation another name'
                )
                raise FieldError(("calculations", calculation.name), problem)
        self._paths |= {
            calculation.name: [("calculation", calculation.name)] for calculation in calculations
        }
        for table, declared in fields.items():
            for field in declared:
                _check_is_column(table, field, columns[table])
                if field.caption:
                    # A column or calculation of the same name takes precedence over a caption.
                    path = ("field", published(table), field.name)
                    self._paths.setdefault(field.caption, [path])

    def path(self, name: str, at: tuple[str, ...]) -> FieldPath:
        """Return the path of the field with this name.

        Raises:
            FieldError: no field has this name, or several fields have it.
        """
        paths = self._paths.get(name, [])
        if not paths:
            problem = f'"{name}" is neither a column nor a calculation: '
            problem += f"{guess(name, self._paths)}The known fields are {', '.join(self._paths)}"
            raise FieldError(at, problem)
        if len(paths) > 1:
            listed = " or ".join(f"{path[1]}.{name}" for path in paths)
            raise FieldError(at, f'several tables have a column "{name}": write {listed}')
        return paths[0]

    def calculations_in(self, formula: str) -> list[str]:
        """Return the declared calculations that an already checked formula uses."""
        paths = (self.path(unbracketed(name), ()) for name in fields_in(formula))
        return [path[1] for path in paths if path[0] == "calculation"]

    def shown(self, path: FieldPath) -> str:
        """Return the name of a field in formulas and hierarchies."""
        return field_name(path, single=self._single)

    def translated(self, formula: str, at: tuple[str, ...]) -> str:
        """Replace captions in a formula by the fields' own names.

        Raises:
            FieldError: the formula is malformed, or one of its names fits no field or several
                fields.
        """
        if fault := fault_in(NO_TEXT.sub("", formula)):
            raise FieldError(at, f'the formula "{formula.strip()}" is not valid: {fault}')
        return with_fields(
            formula, lambda name: bracketed(self.shown(self.path(unbracketed(name), at)))
        )

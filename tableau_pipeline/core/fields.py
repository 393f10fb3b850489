"""What a declaration says of fields and of the data source itself: the values that YAML holds."""

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

# What Tableau's REST API calls the capabilities of data sources.
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
    """What the users of a group may do with the data source."""

    group: str = Field(
        min_length=1,
        description='Group of the site, "All Users". If several domains have it: '
        "example.com\\Analysts.",
    )
    allow: tuple[Capability, ...] = Field(
        description="Capabilities, as the REST API calls them. Read: View. ExportXml: "
        "Download. Write: Overwrite. VizqlDataApiAccess: API Access. ChangeHierarchy: "
        "Move.",
    )


def _tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    for tag in tags:
        if not 0 < len(tag.strip()) <= _LONGEST_TAG:
            raise ValueError(f'"{tag}" is no tag: Tableau takes 1 to {_LONGEST_TAG} characters')
        if '"' in tag:
            raise ValueError(f"{tag} is no tag: where it has quotes, Tableau makes several of it")
        if tag.startswith((TAG_PREFIX, INSTANCE_TAG_PREFIX)):
            raise ValueError(f'"{tag}" is a tag by which pipelines find what is theirs')
    return tags


@keyed
class Properties:
    """The keys of a data source that are about all of it."""

    _: KW_ONLY
    description: str | None = Field(
        default=None,
        description="Its description in Tableau. A line with its models, and with "
        "PIPELINE_WEB_URL a link to the asset, are added. Default: left to people.",
    )
    owner: str | None = Field(
        default=None,
        min_length=1,
        description="User who is to own it; if several domains have it: example.com\\ann. "
        "Default: unchanged, which is the pipeline's user after the first publish.",
    )
    tags: Annotated[tuple[str, ...], AfterValidator(_tags)] = Field(
        default=(), description="Its tags. Those of people stay."
    )
    certify: Literal["after_reconcile"] | None = Field(
        default=None,
        description="after_reconcile: certify it once the published rows were found equal to the "
        "models, and withdraw that if they are not. Default: left to people.",
    )
    certification_note: str | None = Field(
        default=None, description="With `certify`: the note beside the certification."
    )
    permissions: tuple[Permission, ...] = Field(
        default=(),
        description="What groups may do, [{group: Analysts, allow: [Read, Connect]}]. All "
        "else is left to people.",
    )
    quality_warning: bool = Field(
        default=False,
        description="Set a data quality warning while a refresh is refused or fails, or "
        "the data source is late. Needs Data Management, and `TableauPipeline`, whose "
        "sensor sets it.",
    )

    @model_validator(mode="after")
    def _about_is_consistent(self) -> Self:
        if self.certification_note and not self.certify:
            raise mistake(("certification_note",), "it needs certify: after_reconcile")
        named = [each.group for each in self.permissions]
        for number, group in enumerate(named):
            if group in named[:number]:
                problem = f'group "{group}" is named before, too: write one list'
                raise mistake(("permissions", number), problem)
        return self

    def declared_properties(self, *, lineage: str, certified: bool) -> Values:
        """Return the values that are declared of the data source itself.

        Args:
            lineage: where the data source comes from, which is added to its description.
            certified: whether it is to be certified by now, if that is declared.
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
        for each in self.permissions:
            values |= {("permission", each.group, name): "Allow" for name in each.allow}
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
# Tableau's own words, where they are not ours with a capital.
_AGGREGATIONS = MappingProxyType({"countd": "CountD", "stdevp": "StdevP", "varp": "VarP"})

_FORMAT = (
    'Number format, "#,##0.00", "0.0%" or "$#,##0"; date format, "yyyy-MM-dd"; or a format as '
    "Tableau itself writes it, 'c\"€\"#,##0'. Default: Tableau's."
)


def _known_format(text: str) -> str:
    if problem := fault_in_format(text):
        raise ValueError(f"{text!r}: {problem}. With * before it, it is taken as it is")
    return text


@keyed
class _Shown:
    """What Tableau shows of any field."""

    # In YAML, it is the key that holds the field; of a calculation, its caption, too.
    name: SkipJsonSchema[str] = ""
    description: str = Field(
        default="", description="Shown when people point at the field. Default: none."
    )
    format: Annotated[str, AfterValidator(_known_format)] = Field(default="", description=_FORMAT)
    role: Role | None = Field(
        default=None, description="Default: measure for numbers, dimension for all else."
    )
    hidden: bool = Field(default=False, description="Do not show it.")
    folder: str = Field(default="", description="The folder that shows it. Default: none.")


@keyed
class FieldMetadata(_Shown):
    """What Tableau shows of a column."""

    caption: str = Field(default="", description="The name that people see. Default: the column's.")
    aggregation: Aggregation | None = Field(
        default=None, description="How a measure is aggregated. Default: sum for numbers."
    )


@keyed
class Calculation(_Shown):
    """A calculated field. A field of this name that somebody else made stays as it is."""

    _: KW_ONLY
    formula: str = Field(
        min_length=1,
        description="In Tableau's language, with columns, [net] or, of several tables, "
        "[orders.net]; captions; and other calculations.",
    )
    type: DataType = Field(default="real", description="The type of its values.")

    @model_validator(mode="after")
    def _has_a_format_of_its_type(self) -> Self:
        if problem := misfit(self.format, self.type):
            raise mistake(("format",), problem)
        return self


@keyed
class Members:
    """Fields under a name: those of a hierarchy, from its top down, or of a folder."""

    name: SkipJsonSchema[str]
    fields: tuple[str, ...] = Field(min_length=1)


@keyed
class MetadataPolicy:
    """What happens to metadata that people edited."""

    on_conflict: OnConflict = Field(
        default="keep",
        description="If both the declaration and a person changed a value. keep: the "
        "person's stays, and a check reports both. replace: the declaration's is "
        "published. refuse: the refresh is refused. What only a person changed always "
        "stays.",
    )


def by_name(kind: Any) -> BeforeValidator:
    """Return a validator of values that have a name, which in YAML is the key of each."""
    return written_as(
        dict[str, kind],
        lambda found: tuple(replace(each, name=name) for name, each in found.items()),
    )


# In YAML, lists of fields by name.
MEMBERS = written_as(
    dict[str, Annotated[list[str], Field(min_length=1)]],
    lambda found: tuple(Members(name=name, fields=tuple(each)) for name, each in found.items()),
)


class FieldError(RefusedError):
    """The declaration names a field that does not exist, or contradicts itself.

    Attributes:
        at: the keys in YAML where it does.
    """

    code = Code.DECLARATION

    def __init__(self, at: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.at = at


# What models say of their columns already, by table and column.
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
    """Return the values that a declaration asks for; `Declaration.wanted` calls it with its parts.

    Args:
        columns: all columns of each table.
        published: returns the name of a table in the file.
        inherited: what is declared beats it, value by value.

    Raises:
        FieldError: a field is unknown or ambiguous, or two declarations contradict each other.
    """
    names = _Names(columns, published, fields, calculations)
    values: dict[FieldPath, str] = {}
    for (table, column), each in inherited.items():
        if column in columns.get(table, ()):
            values |= _parts(("field", published(table), column), each)
    for table, declared in fields.items():
        for each in declared:
            values |= _parts(("field", published(table), each.name), each)
    for each in calculations:
        at = ("calculations", each.name, "formula")
        formula = names.translated(each.formula, at)
        path = ("calculation", each.name)
        values |= _parts(path, each) | {(*path, "caption"): each.name, (*path, "formula"): formula}
    _check_rings(names, calculations)
    members: dict[str, Sequence[FieldPath]] = {}
    for each in hierarchies:
        members[each.name] = [names.path(one, ("hierarchies", each.name)) for one in each.fields]
        shown = [names.shown(path) for path in members[each.name]]
        values["hierarchy", each.name, "fields"] = json.dumps(shown, ensure_ascii=False)
    for each in folders:
        for one in each.fields:
            path = (*names.path(one, ("folders", each.name)), "folder")
            if other := values.get(path):
                problem = f'"{one}" is in the folder "{other}", too: a field has one'
                raise FieldError(("folders", each.name), problem)
            values[path] = each.name
    clean = {path: NO_TEXT.sub("", value).strip() for path, value in values.items()}
    _check_names(clean, columns, published, calculations)
    return _in_one_folder({path: value for path, value in clean.items() if value}, members)


def _in_one_folder(values: Values, hierarchies: Mapping[str, Sequence[FieldPath]]) -> Values:
    """The values, with a folder for all fields of a hierarchy, of which one has a folder.

    Tableau puts a hierarchy into a folder as a whole.
    """
    found = dict(values)
    # As often as there are some, since they may have fields in common.
    for name, fields in [*hierarchies.items()] * len(hierarchies):
        paths = [(*path, "folder") for path in fields]
        folders = {found[path]: path for path in paths if path in found}
        if len(folders) > 1:
            listed = ", ".join(f'"{path[-2]}" in "{folder}"' for folder, path in folders.items())
            problem = f"Tableau shows a hierarchy in one folder, and of its fields are {listed}"
            raise FieldError(("hierarchies", name), problem)
        found |= {path: folder for folder in folders for path in paths}
    return found


def _parts(path: FieldPath, declared: FieldMetadata | Calculation) -> dict[FieldPath, str]:
    """The values of a field."""
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
    return {(*path, part): value for part, value in parts.items() if value}


def _check_names(
    values: Values,
    columns: Mapping[str, Sequence[str]],
    published: Callable[[str], str],
    calculations: Sequence[Calculation],
) -> None:
    """Check that people see each name once, wherever it is declared."""
    shown: dict[str, str] = {}
    captions: list[tuple[str, str, tuple[str, ...]]] = []
    for each in calculations:
        caption = values["calculation", each.name, "caption"]
        captions.append((caption, f'the calculation "{each.name}"', ("calculations", each.name)))
    for table, column in ((name, each) for name, listed in columns.items() for each in listed):
        what = f"{table}.{column}"
        if caption := values.get(("field", published(table), column, "caption")):
            captions.append((caption, what, ("tables", table, "fields", column, "caption")))
        else:
            # Of columns of one name in several tables, Tableau shows the table, too.
            shown.setdefault(column, what)
    for caption, what, at in captions:
        if caption in shown:
            problem = f'{what} has the name "{caption}", which {shown[caption]} has, too: '
            raise FieldError(at, f"{problem}give one of them another `caption` or name")
        shown[caption] = what


def _check_rings(names: "_Names", calculations: Sequence[Calculation]) -> None:
    """Check that no calculation uses itself, by whatever others."""
    uses = {each.name: names.calculations_in(each.formula) for each in calculations}
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        ring = error.args[1][:0:-1]
        first = ring.index(min(ring))
        listed = ", ".join([*ring[first:], *ring[: first + 1]])
        problem = f"it uses itself ({listed}): let one of them use columns alone"
        raise FieldError(("calculations", ring[first], "formula"), problem) from None


def _check(table: str, field: FieldMetadata, columns: Sequence[str]) -> None:
    if field.name not in columns:
        problem = f'"{field.name}" is not a column of the table "{table}": '
        problem += f"{guess(field.name, columns)}Its columns are {', '.join(columns)}"
        raise FieldError(("tables", table, "fields", field.name), problem)


class _Names:
    """What each name in a formula, a hierarchy or a folder means."""

    def __init__(
        self,
        columns: Mapping[str, Sequence[str]],
        published: Callable[[str], str],
        fields: Mapping[str, Sequence[FieldMetadata]],
        calculations: Sequence[Calculation],
    ) -> None:
        self._single = len(columns) == 1
        self._found: dict[str, list[FieldPath]] = defaultdict(list)
        for table, listed in columns.items():
            for column in listed:
                for name in (f"{table}.{column}", column):
                    self._found[name].append(("field", published(table), column))
        for each in calculations:
            if each.name in self._found:
                problem = f'a column is named "{each.name}": give the calculation another name'
                raise FieldError(("calculations", each.name), problem)
        self._found |= {each.name: [("calculation", each.name)] for each in calculations}
        for table, declared in fields.items():
            for each in declared:
                _check(table, each, columns[table])
                if each.caption:
                    # A name beats a caption.
                    self._found.setdefault(each.caption, [("field", published(table), each.name)])

    def path(self, name: str, at: tuple[str, ...]) -> FieldPath:
        """The path of a field by its name.

        Raises:
            FieldError: there is no such field, or several.
        """
        found = self._found.get(name, [])
        if not found:
            problem = f'"{name}" is neither a column nor a calculation: '
            problem += f"{guess(name, self._found)}The known fields are {', '.join(self._found)}"
            raise FieldError(at, problem)
        if len(found) > 1:
            listed = " or ".join(f"{path[1]}.{name}" for path in found)
            raise FieldError(at, f'several tables have a column "{name}": write {listed}')
        return found[0]

    def calculations_in(self, formula: str) -> list[str]:
        """The declared calculations that a formula uses, all of whose names are known."""
        found = (self.path(unbracketed(each), ()) for each in fields_in(formula))
        return [path[1] for path in found if path[0] == "calculation"]

    def shown(self, path: FieldPath) -> str:
        """The name of a field in formulas and hierarchies."""
        return field_name(path, single=self._single)

    def translated(self, formula: str, at: tuple[str, ...]) -> str:
        """The formula with the fields' own names.

        Raises:
            FieldError: it means nothing, or there is no such field, or several.
        """
        if fault := fault_in(NO_TEXT.sub("", formula)):
            raise FieldError(at, f'the formula "{formula.strip()}" means nothing: {fault}')
        return with_fields(
            formula, lambda name: bracketed(self.shown(self.path(unbracketed(name), at)))
        )

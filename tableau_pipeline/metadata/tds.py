"""Read and edit what a `.tds` says of fields; all else in it stays as it is."""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path as File
from pathlib import PurePosixPath
from types import MappingProxyType
from zipfile import ZIP_DEFLATED, ZipFile

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.metadata.columns import (
    AGGREGATIONS,
    Tables,
    default_role,
    folder_items,
    follow,
    local_names,
)
from tableau_pipeline.metadata.digest import attributes_of, label, parsed, plain, records
from tableau_pipeline.metadata.editing import ATTRIBUTES, LINE_END, Editing, Names, local_name
from tableau_pipeline.metadata.formulas import fields_in, unquoted, with_fields
from tableau_pipeline.metadata.merge import TAKEN, Path, Values

_NONE: Values = MappingProxyType({})
_BRACKETS = re.compile(r"\[(?:[^\]]|\]\])*\]")
# The name of a column that a view or filter uses, with its aggregation and kind.
_INSTANCE = re.compile(r"\w+:(.*):\w+", re.DOTALL)


class Tds:
    """A `.tds`.

    Attributes:
        content: the file.

    Raises:
        ValueError: it is none, or has a DTD, or is too large or deep.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._root = parsed(content)

    def values(self, wanted: Values = _NONE, written: Sequence[Values] = ()) -> Values:
        """Return the values of fields, hierarchies, and the calculations of the other two sides.

        What is as the products have it by default is absent, unless the other two sides name it.
        """
        return dict(_Reading(self._root, wanted, written).values())

    def edited(self, changes: Mapping[Path, str | None], tables: Tables) -> bytes:
        """Return the file with these changes and columns; all else stays as it is.

        Args:
            changes: as in `Merge.changes`. Those of columns that `tables` lacks say nothing.
            tables: the columns that the published file will have.

        Raises:
            ValueError: it has other tables, so that nothing can be merged.
        """
        root = parsed(self.content)
        before = etree.tostring(root.getroottree())
        follow(root, tables)
        Editing(root, changes).apply()
        if etree.tostring(root.getroottree()) == before:
            return self.content
        return etree.tostring(root.getroottree(), xml_declaration=True, encoding="utf-8")

    def used_by(self, *name: str, but: Iterable[Path] = ()) -> tuple[str, ...]:
        """Return what names a field: calculated fields, hierarchies, groups, sets, filters.

        Args:
            name: table and column, or the name of a declared calculation.
            but: paths of formulas and hierarchies that change, and no longer use it then.
        """
        columns = local_names(self._root)
        local = columns.get((name[0], name[1])) if len(name) == 2 else local_name(name[0])
        return tuple(dict.fromkeys(_users(self._root, local, frozenset(but)))) if local else ()


class _Reading:
    """The values of a `.tds`, as the merge with two other sides needs them."""

    def __init__(self, root: Element, wanted: Values, written: Sequence[Values]) -> None:
        self._root, self._wanted, self._written = root, wanted, written
        sides = (wanted, *written)
        self._calculations = dict.fromkeys(
            path[1] for side in sides for path in side if path[0] == "calculation"
        )
        self._names = Names(root, self._calculations)
        self._items = folder_items(root)
        self._columns = {each.get("name", ""): each for each in root if plain(each) == "column"}

    def values(self) -> Iterator[tuple[Path, str]]:
        """Yield path and value."""
        locals_ = local_names(self._root)
        for table, column, texts in records(self._root):
            local = locals_[table, column]
            path = ("field", table, column)
            element = self._columns.get(local)
            yield from self._field(path, local, element, texts.get("local-type", ""))
        for name in self._calculations:
            yield from self._calculation(name)
        for hierarchy in self._root.iterfind("./drill-paths/drill-path"):
            members = [self._names.shown(each.text or "") for each in hierarchy.iterfind("field")]
            yield (
                ("hierarchy", hierarchy.get("name", ""), "fields"),
                json.dumps(members, ensure_ascii=False),
            )

    def _field(
        self, path: Path, local: str, element: Element | None, datatype: str
    ) -> Iterator[tuple[Path, str]]:
        if element is not None:
            for part, attribute in ATTRIBUTES.items():
                if (value := element.get(attribute, "")) and (part, value) != ("hidden", "false"):
                    yield (*path, part), value
            if text := _description(element):
                yield (*path, "description"), text
        for item in self._items.get(local, ())[:1]:
            folder = item.getparent()
            if folder is not None and (name := folder.get("name")):
                yield (*path, "folder"), name
        attributes = {} if element is None else attributes_of(element)
        datatype = attributes.get("datatype", datatype)
        role = attributes.get("role", default_role(datatype))
        yield from self._unless(default_role(datatype), (*path, "role"), role)
        usual = AGGREGATIONS.get(datatype, "Count")
        yield from self._unless(usual, (*path, "aggregation"), attributes.get("aggregation", usual))

    def _unless(self, default: str, path: Path, value: str) -> Iterator[tuple[Path, str]]:
        """The value, unless it is the products' default, and the other sides do not name it."""
        is_named = self._written and all(path in side for side in self._written)
        if value != default or self._wanted.get(path) == value or is_named:
            yield path, value

    def _calculation(self, name: str) -> Iterator[tuple[Path, str]]:
        local, path = local_name(name), ("calculation", name)
        element = self._columns.get(local)
        inner = None if element is None else element.find("calculation")
        if element is not None and inner is not None:
            formula = with_fields(inner.get("formula", ""), self._names.shown_in_brackets)
            yield (*path, "formula"), formula
            datatype = element.get("datatype", "")
            yield from self._unless("real", (*path, "type"), datatype)
            yield from self._field(path, local, element, datatype)
            return
        for other, column in self._columns.items():
            if label(column) == name:
                inner = column.find("calculation")
                formula = other if inner is None else inner.get("formula", other)
                yield (*path, "formula"), with_fields(formula, self._names.shown_in_brackets)
                yield (*path, TAKEN), other
                return


def _description(column: Element) -> str:
    """The text of a description, in which products write the end of a line in a way of theirs."""
    runs = column.iterfind("./desc/formatted-text/run")
    return "".join(run.text or "" for run in runs).replace(f"{LINE_END}\n", "\n").strip()


def _users(root: Element, local: str, but: frozenset[Path]) -> Iterator[str]:
    changed = {local_name(path[1]) for path in but if path[::2] == ("calculation", "formula")}
    for each in root:
        inner = each.find("calculation")
        kind, name = plain(each), each.get("name", "")
        if kind == "column" and inner is not None and name not in {*changed, local}:
            if local in fields_in(inner.get("formula", "")) or _names(inner, local):
                yield f'calculated field "{label(each)}"'
        elif kind == "group" and _names(each, local):
            yield f'group or set "{label(each)}"'
        elif kind == "filter" and _names(each, local):
            yield "a filter"
    for hierarchy in root.iterfind("./drill-paths/drill-path"):
        name = hierarchy.get("name", "")
        members = [each.text for each in hierarchy.iterfind("field")]
        if local in members and ("hierarchy", name, "fields") not in but:
            yield f'hierarchy "{name}"'


def _names(element: Element, local: str) -> bool:
    """Whether an element or one in it names a field in an attribute other than a formula."""
    for each in element.iter():
        for key, value in attributes_of(each).items():
            for name in _BRACKETS.findall(value) if key != "formula" else ():
                instance = _INSTANCE.fullmatch(unquoted(name))
                if name == local or (instance and instance[1] == unquoted(local)):
                    return True
    return False


def pack(tds: bytes, hyper: File, into: File) -> None:
    """Write a `.tdsx`, with the `.hyper` file where the `.tds` expects it.

    Raises:
        ValueError: the `.tds` has no connection to such a file.
    """
    root = parsed(tds)
    found = [
        *root.iterfind("./extract//connection[@class='hyper']"),
        *root.iterfind("./connection//connection[@class='hyper']"),
        *root.iterfind("./connection[@class='hyper']"),
    ]
    if not found:
        raise ValueError("it has no connection to a .hyper file")
    path = PurePosixPath(found[0].get("dbname", "").replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in str(path) or path.suffix != ".hyper":
        # The path of another machine, which no package can hold.
        path = PurePosixPath("Data/Extracts", hyper.name)
        found[0].set("dbname", str(path))
        tds = etree.tostring(root.getroottree(), xml_declaration=True, encoding="utf-8")
    with ZipFile(into, "w", ZIP_DEFLATED) as package:
        package.writestr(f"{path.stem}.tds", tds)
        with hyper.open("rb") as source, package.open(str(path), "w", force_zip64=True) as target:
            shutil.copyfileobj(source, target, 2**20)

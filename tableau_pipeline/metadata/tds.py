"""Read and edit what a `.tds` says of fields and columns; all else in it stays as it is."""

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import chain, count
from pathlib import Path as File
from pathlib import PurePosixPath
from types import MappingProxyType
from zipfile import ZIP_DEFLATED, ZipFile

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.metadata.document import (
    AGGREGATIONS,
    Document,
    attributes_of,
    default_role,
    fields_in,
    insert,
    label,
    local_name,
    parsed,
    place,
    plain,
    quoted,
    set_type,
    texts_of,
    unquoted,
    with_fields,
)
from tableau_pipeline.metadata.merge import TAKEN, Path, Values

# The columns of each table by its name in the file: (name, Hyper's SQL type), in order.
Tables = Mapping[str, Sequence[tuple[str, str]]]
# By Hyper's type: the types of Tableau that mean it, the usual one first, and the remote type.
_TYPES: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        "BOOLEAN": (("boolean",), "11"),
        "SMALLINT": (("integer",), "2"),
        "INTEGER": (("integer",), "3"),
        "BIGINT": (("integer",), "20"),
        "NUMERIC": (("real", "integer"), "131"),
        "REAL": (("real",), "4"),
        "DOUBLE PRECISION": (("real",), "5"),
        "BYTES": (("string",), "128"),
        "DATE": (("date",), "133"),
        "TIMESTAMP": (("datetime",), "135"),
        "TIMESTAMPTZ": (("datetime",), "135"),
        "GEOGRAPHY": (("spatial",), "WKB"),
    }
)
_TEXT = (("string",), "129")
# What a new column has in common with its neighbours.
_OF_THE_TABLE = frozenset({"parent-name", "family", "object-id"})
# What a column of another type does not have.
_OF_THE_TYPE = frozenset({"precision", "scale", "width", "collation", "attributes"})


class Following(Document):
    """A `.tds` whose columns become those of a file, wherever it lists them."""

    def __init__(self, root: Element) -> None:
        super().__init__(root)
        tables = {each.local: each.table for each in self.records}
        # By local name; and by table and list, the last one, after which others go.
        self._entries: dict[str, list[Element]] = defaultdict(list)
        self._last: dict[str, dict[Element, Element]] = defaultdict(dict)
        self._ordinals: dict[Element, int] = defaultdict(int)
        lists = ("connection//metadata-record[@class='column']", "connection//cols/map")
        parts = [f"./{each}" for each in lists] + [f"./extract//{each}" for each in lists]
        for each in chain.from_iterable(map(root.iterfind, parts)):
            texts, parent = texts_of(each), each.getparent()
            local, ordinal = texts.get("local-name") or each.get("key", ""), texts.get("ordinal")
            self._entries[local].append(each)
            if parent is not None:
                number = int(ordinal) if ordinal and ordinal.isdecimal() else 0
                self._ordinals[parent] = max(self._ordinals[parent], number)
                self._last[tables.get(local, "")][parent] = each
        # The field of a column that was there before may be left, and is taken up again.
        made = {name for name, each in self.columns.items() if each.find("calculation") is not None}
        groups = {each.get("name", "") for each in root if plain(each) == "group"}
        self._used = {*tables, *made, *groups}

    def follow(self, tables: Tables) -> None:
        """Add the columns that are new, remove those that are gone, and change types.

        Raises:
            ValueError: the tables are others.
        """
        if (have := {table for table, _ in self.locals}) != set(tables):
            raise ValueError(
                f"its tables are {', '.join(sorted(have)) or 'not known'}, and those to be "
                f"published {', '.join(sorted(tables))}"
            )
        gone = dict(self.locals)
        for table, columns in tables.items():
            for name, type_ in columns:
                if local := gone.pop((table, name), None):
                    self._retype(local, type_)
                else:
                    self._append(table, name, type_)
        for entry in chain.from_iterable(self._entries[local] for local in gone.values()):
            if (parent := entry.getparent()) is not None:
                parent.remove(entry)
        self.drop(set(gone.values()))

    def _append(self, table: str, name: str, type_: str) -> None:
        """Add a column after those of its table."""
        numbered = (f"{name} ({table}) {number}" for number in count(1))
        names = map(quoted, chain([name, f"{name} ({table})"], numbered))
        local = next(each for each in names if each not in self._used)
        self._used.add(local)
        texts = {
            **_texts(type_),
            "remote-name": name,
            "remote-alias": name,
            "local-name": local,
            "contains-null": "true",
        }
        for parent, neighbour in self._last[table].items():
            new = deepcopy(neighbour)
            if new.tag == "map":
                new.set("key", local)
                new.set("value", f"{new.get('value', '').rpartition('].[')[0]}].{quoted(name)}")
            else:
                self._ordinals[parent] += 1
                _rewrite(new, {**texts, "ordinal": str(self._ordinals[parent])}, _OF_THE_TABLE)
            place(parent, parent.index(neighbour) + 1, new)
            self._last[table][parent] = new
        if local in self.columns:
            set_type(self.columns[local], texts["local-type"])

    def _retype(self, local: str, type_: str) -> None:
        """Give a column the type that it has in the file."""
        known = (None, "", *_type(type_)[0])
        old = [e for e in self._entries[local] if texts_of(e).get("local-type") not in known]
        for record in old:
            _rewrite(record, _texts(type_), texts_of(record).keys() - _OF_THE_TYPE)
        if old and local in self.columns:
            set_type(self.columns[local], _texts(type_)["local-type"])


def _type(type_: str) -> tuple[tuple[str, ...], str]:
    return _TYPES.get(type_.partition("(")[0], _TEXT)


def _texts(type_: str) -> dict[str, str]:
    """What a record says of a column of this type of Hyper."""
    (datatype, *_), remote = _type(type_)
    usual = AGGREGATIONS.get(datatype, "Count")
    return {"local-type": datatype, "remote-type": remote, "aggregation": usual}


def _rewrite(record: Element, texts: Mapping[str, str], kept: Collection[str]) -> None:
    """Set texts of a record, and remove all else but what is to be kept."""
    for child in list(record):
        if plain(child) in texts:
            child.text = texts[plain(child)]
        elif plain(child) not in kept:
            record.remove(child)


_NONE: Values = MappingProxyType({})
_BRACKETS = re.compile(r"\[(?:[^\]]|\]\])*\]")
# The name of a column that a view or filter uses, with its aggregation and kind.
_INSTANCE = re.compile(r"\w+:(.*):\w+", re.DOTALL)
# The feature that brought folders for dimensions and measures alike.
_FOLDERS = "SchemaViewerObjectModel"
# What Tableau writes before the end of a line in formatted text.
_LINE_END = "\u00c6"
_ATTRIBUTES = MappingProxyType(
    {"caption": "caption", "format": "default-format", "hidden": "hidden"}
)


class Tds(Document):
    """A `.tds`.

    Attributes:
        content: the file.

    Raises:
        ValueError: it is none, or has a DTD, or is too large or deep.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(parsed(content))
        self.content = content

    def values(self, wanted: Values = _NONE, written: Sequence[Values] = ()) -> Values:
        """Return the values of fields, hierarchies, and the calculations of the other two sides.

        What is as the products have it by default is absent, unless the other two sides name it.
        """
        paths = [path for side in (wanted, *written) for path in side]
        calculations = dict.fromkeys(path[1] for path in paths if path[0] == "calculation")
        found = {}
        for path, value, usual in self._values(calculations):
            is_named = written and all(path in side for side in written)
            if value and (value != usual or wanted.get(path) == value or is_named):
                found[path] = value
        return found

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
        Following(root).follow(tables)
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
        local = self.locals.get((name[0], name[1])) if name[1:] else local_name(name[0])
        return tuple(dict.fromkeys(_users(self, local, frozenset(but)))) if local else ()

    def _values(self, calculations: Iterable[str]) -> Iterator[tuple[Path, str, str]]:
        """Yield path and value, with what the products have by default; "" is absent."""
        names = self.names | {local_name(each): each for each in calculations}
        for each in self.records:
            yield from self._field(("field", each.table, each.column), each.local, each.type)
        for name in calculations:
            yield from self._calculation(("calculation", name), name, names)
        for name, element in self.hierarchies.items():
            local = [each.text or "" for each in element.iterfind("field")]
            members = json.dumps([names.get(each, each) for each in local], ensure_ascii=False)
            yield ("hierarchy", name, "fields"), members, ""

    def _field(self, path: Path, local: str, datatype: str) -> Iterator[tuple[Path, str, str]]:
        attributes = attributes_of(self.columns.get(local))
        datatype = attributes.get("datatype", datatype)
        usual = {
            "role": default_role(datatype),
            "aggregation": AGGREGATIONS.get(datatype, "Count"),
        }
        found = {part: attributes.get(name, "") for part, name in _ATTRIBUTES.items()}
        found |= {part: attributes.get(part, value) for part, value in usual.items()}
        found["hidden"] = "true" if found["hidden"] == "true" else ""
        found["description"] = _description(self.columns.get(local))
        folders = [item.getparent() for item in self.items.get(local, ())[:1]]
        found["folder"] = "".join(attributes_of(each).get("name", "") for each in folders)
        for part, value in found.items():
            yield (*path, part), value, usual.get(part, "")

    def _calculation(
        self, path: Path, name: str, names: Mapping[str, str]
    ) -> Iterator[tuple[Path, str, str]]:
        """What is called so: a field of ours, or of somebody else."""

        def shown(formula: str) -> str:
            return with_fields(formula, lambda each: quoted(names[each]) if each in names else each)

        ours = self.columns.get(local_name(name))
        if ours is not None and (inner := ours.find("calculation")) is not None:
            datatype = ours.get("datatype", "")
            yield (*path, "formula"), shown(inner.get("formula", "")), ""
            yield (*path, "type"), datatype, "real"
            yield from self._field(path, local_name(name), datatype)
            return
        for other, column in self.columns.items():
            if label(column) == name:
                formula = attributes_of(column.find("calculation")).get("formula", other)
                yield (*path, "formula"), shown(formula), ""
                yield (*path, TAKEN), other, ""
                return


def _description(column: Element | None) -> str:
    """The text of a description, in which products write the end of a line in a way of theirs."""
    runs = () if column is None else column.iterfind("./desc/formatted-text/run")
    return "".join(run.text or "" for run in runs).replace(f"{_LINE_END}\n", "\n").strip()


class Editing(Document):
    """Changes of a `.tds` in place."""

    def __init__(self, root: Element, changes: Mapping[Path, str | None]) -> None:
        super().__init__(root)
        self._changes = changes
        self._named = {name: local for local, name in self.names.items()}
        ours = (path[1] for path in changes if path[0] == "calculation")
        self._named |= {name: local_name(name) for name in ours}
        self._types = {each.local: each.type for each in self.records}
        tags = {plain(each) for each in root}
        self._has_old_folders = "folder" in tags and "folders-common" not in tags

    def apply(self) -> None:
        """Make the changes."""
        formulas = {path[1]: value for path, value in self._changes.items() if _is_formula(path)}
        for name, formula in formulas.items():
            if formula and local_name(name) not in self.columns:
                self.add(local_name(name), "real").set("caption", name)
        # The role depends on the type.
        for path, value in sorted(self._changes.items(), key=lambda each: each[0][-1] != "type"):
            if path[0] == "hierarchy":
                self._set_hierarchy(path[1], json.loads(value) if value else ())
            elif local := self._known(path):
                self._set(local, path[-1], value)
        self.drop({local_name(name) for name, formula in formulas.items() if not formula})

    def _known(self, path: Path) -> str | None:
        """The local name of a field; None if the published file does not have it."""
        if path[0] == "field":
            return self.locals.get((path[1], path[2]))
        ours = local_name(path[1])
        return ours if ours in self.columns else None

    def _set(self, local: str, part: str, value: str | None) -> None:
        if part == "folder":
            self._set_folder(local, value)
            return
        column = self.columns.get(local)
        if column is None:
            if value is None:
                return
            column = self.add(local, self._types.get(local) or "string")
        match part:
            case "description":
                _describe(column, value)
            case "type":
                set_type(column, value or "real")
            case "role":
                datatype = column.get("datatype", "")
                set_type(column, datatype, value or default_role(datatype))
            case "formula":
                inner = column.find("calculation")
                if inner is None:
                    inner = etree.Element("calculation", {"class": "tableau"})
                    place(column, 0, inner)
                named = with_fields(value or "", lambda each: self._local(unquoted(each)) or each)
                inner.set("formula", named)
            case _:
                attribute = _ATTRIBUTES.get(part, part)
                if value is None:
                    column.attrib.pop(attribute, None)
                else:
                    column.set(attribute, value)

    def _local(self, name: str) -> str | None:
        """The local name of what people write; None if there is no such field of ours."""
        # It may be a calculation of ours that does not change.
        ours = local_name(name)
        return self._named.get(name, ours if ours in self.columns else None)

    def _set_folder(self, local: str, name: str | None) -> None:
        for item in self.items.pop(local, ()):
            self.take_out(item)
        if name is None:
            return
        folders = self.root if self._has_old_folders else self._section("folders-common", _FOLDERS)
        folder = _child(folders, "folder", name)
        if self._has_old_folders:
            # They hold either dimensions or measures.
            role = attributes_of(self.columns.get(local)).get("role")
            folder.set("role", f"{role or default_role(self._types.get(local, ''))}s")
        item = etree.Element("folder-item", {"name": local, "type": "field"})
        place(folder, len(folder), item)
        self.items[local] = [item]

    def _set_hierarchy(self, name: str, members: Sequence[str]) -> None:
        path = _child(self._section("drill-paths"), "drill-path", name)
        for each in path.findall("field"):
            path.remove(each)
        # A person's description of it comes after its fields.
        for position, member in enumerate(members):
            field = etree.Element("field")
            field.text = self._local(member) or member
            path.insert(position, field)
        if not members:
            self.take_out(path)

    def _section(self, tag: str, feature: str | None = None) -> Element:
        """The part of the data source; it is made if there is none."""
        found = next((each for each in reversed(self.root) if plain(each) == tag), None)
        if found is None:
            prefix = self._prefix(feature) if feature else ""
            found = etree.Element(f"{prefix}{tag}")
            insert(self.root, found)
        return found

    def _prefix(self, feature: str) -> str:
        """What products write before elements of a feature, which the file must list."""
        manifest = self._section("document-format-change-manifest")
        listed = {str(each.tag) for each in manifest}
        prefix = f"_.fcp.{feature}.true..."
        # Products in which all of this is new write such prefixes.
        is_new = any(
            name.startswith(("_.fcp.ObjectModelEncapsulateLegacy", prefix)) for name in listed
        )
        prefix = prefix if is_new and feature not in listed else ""
        if f"{prefix}{feature}" not in listed:
            place(manifest, len(manifest), etree.Element(f"{prefix}{feature}"))
        return prefix


def _is_formula(path: Path) -> bool:
    return path[::2] == ("calculation", "formula")


def _child(parent: Element, tag: str, name: str) -> Element:
    """The child of this name, which is made if there is none."""
    for each in parent:
        if plain(each) == tag and each.get("name") == name:
            return each
    child = etree.Element(tag, {"name": name})
    if parent.tag == "datasource":
        insert(parent, child)
    else:
        place(parent, len(parent), child)
    return child


def _describe(column: Element, text: str | None) -> None:
    for each in column.findall("desc"):
        column.remove(each)
    if text is not None:
        desc = etree.Element("desc")
        place(column, len(column), desc)
        run = etree.SubElement(etree.SubElement(desc, "formatted-text"), "run")
        run.text = text.replace("\n", f"{_LINE_END}\n")


def _users(document: Document, local: str, but: frozenset[Path]) -> Iterator[str]:
    changed = {local_name(path[1]) for path in but if _is_formula(path)}
    for each in document.root:
        inner = each.find("calculation")
        kind, name = plain(each), each.get("name", "")
        if kind == "column" and inner is not None and name not in {*changed, local}:
            if local in fields_in(inner.get("formula", "")) or _names(inner, local):
                yield f'calculated field "{label(each)}"'
        elif kind == "group" and _names(each, local):
            yield f'group or set "{label(each)}"'
        elif kind == "filter" and _names(each, local):
            yield "a filter"
    for name, hierarchy in document.hierarchies.items():
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
    parts = ("./extract//connection", "./connection//connection", "./connection")
    found = [each for part in parts for each in root.iterfind(f"{part}[@class='hyper']")]
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

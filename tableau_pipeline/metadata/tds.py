"""Read and edit what a `.tds` says of fields and columns; all else in it stays as it is."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from zipfile import ZIP_DEFLATED, ZipFile

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.metadata.columns import Following, TypesByTable
from tableau_pipeline.metadata.document import (
    AGGREGATIONS,
    Document,
    attributes_of,
    bracketed,
    default_role,
    fields_in,
    folder_of,
    insert,
    insert_at,
    is_automatic,
    is_off,
    label,
    local_name,
    names_field,
    parsed,
    set_type,
    tag_of,
    unbracketed,
    with_fields,
)
from tableau_pipeline.metadata.merge import TAKEN, ConflictPolicy, FieldPath, Merge, Values, merge

_NONE: Values = MappingProxyType({})
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

    def edited(self, changes: Mapping[FieldPath, str | None], tables: TypesByTable) -> bytes:
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

    def used_by(self, *name: str, but: Iterable[FieldPath] = ()) -> tuple[str, ...]:
        """Return what names a field: calculated fields, hierarchies, groups, sets, filters.

        Args:
            name: table and column, or the name of a declared calculation.
            but: paths of formulas and hierarchies that change, and no longer use it then.
        """
        local = self.locals.get((name[0], name[1])) if name[1:] else local_name(name[0])
        return tuple(dict.fromkeys(_users(self, local, frozenset(but)))) if local else ()

    def shared_names(self) -> set[str]:
        """The local names of fields whose name another field has, too."""
        shown = self.shown()
        count = Counter(shown.values())
        return {local for local, name in shown.items() if count[name] > 1}

    def taken(self, changes: Iterable[FieldPath]) -> Values:
        """Mark the changes, which have been made, that gave a field the name of another one."""
        shared, shown, found = self.shared_names(), self.shown(), {}
        for path in changes if shared else ():
            is_calculation = path[0] == "calculation"
            local = local_name(path[1]) if is_calculation else self.locals.get(path[1:3], "")
            if path[-1] in ("caption", "formula") and local in shared:
                found[(*(path[:2] if is_calculation else path), TAKEN)] = shown[local]
        return found

    def work_on(self, path: FieldPath, written: Sequence[Values]) -> Iterator[str]:
        """Yield in words what people made of a column or declared calculation itself.

        Args:
            path: the first parts of the paths of its values.
            written: what we wrote last, as in `merge`.
        """
        of_column = path[0] == "field"
        local = self.locals.get((path[1], path[2])) if of_column else local_name(path[1])
        if local is None:
            return
        for each, value, usual in self._field(path, local, ""):
            if value not in ("", usual) and all(value != past.get(each) for past in written):
                part, (first, *_) = each[-1], value.splitlines()
                yield part if part == "hidden" else f'{part} "{first}"'
        column = self.columns.get(local)
        if column is not None and column.find("aliases") is not None:
            yield "aliases"

    def _values(self, calculations: Iterable[str]) -> Iterator[tuple[FieldPath, str, str]]:
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

    def _field(
        self, path: FieldPath, local: str, datatype: str
    ) -> Iterator[tuple[FieldPath, str, str]]:
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
        found["folder"] = self.folder(local)
        for part, value in found.items():
            yield (*path, part), value, usual.get(part, "")

    def _calculation(
        self, path: FieldPath, name: str, names: Mapping[str, str]
    ) -> Iterator[tuple[FieldPath, str, str]]:
        """What is called so: a field of ours, or of somebody else."""

        def shown(formula: str) -> str:
            return with_fields(
                formula, lambda each: bracketed(names[each]) if each in names else each
            )

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


def merged_into(
    tds: Tds,
    wanted: Values,
    written: Sequence[Values],
    found: Values,
    *,
    on_conflict: ConflictPolicy,
    tables: TypesByTable,
) -> Merge:
    """Merge what is wanted into a `.tds`, but nothing that would give two fields one name.

    Args:
        found: its values, and perhaps those of the data source itself; all else as in `merge` and
            `Tds.edited`.

    Raises:
        ValueError: it has other tables.
    """
    while True:
        result = merge(wanted, written, found, on_conflict=on_conflict)
        edited = tds.edited(result.of_fields, tables)
        # What is not set, because a name is taken, may leave another name taken.
        taken = Tds(edited).taken(result.of_fields) if result.of_fields else {}
        if not taken:
            return replace(result, tds=edited)
        found = {**found, **taken}


def _description(column: Element | None) -> str:
    """The text of a description, in which products write the end of a line in a way of theirs."""
    runs = () if column is None else column.iterfind("./desc/formatted-text/run")
    return "".join(run.text or "" for run in runs).replace(f"{_LINE_END}\n", "\n").strip()


class Editing(Document):
    """Changes of a `.tds` in place."""

    def __init__(self, root: Element, changes: Mapping[FieldPath, str | None]) -> None:
        super().__init__(root)
        self._changes = changes
        self._named = {name: local for local, name in self.names.items()}
        ours = (path[1] for path in changes if path[0] == "calculation")
        self._named |= {name: local_name(name) for name in ours}
        self._types = {each.local: each.type for each in self.records}
        self._folders: dict[str | None, str] = {}
        tags = {tag_of(each) for each in root if not is_off(each)}
        self._has_old_folders = "folder" in tags and "folders-common" not in tags

    def apply(self) -> None:
        """Make the changes."""
        formulas = {path[1]: value for path, value in self._changes.items() if _is_formula(path)}
        for name, formula in formulas.items():
            if formula and local_name(name) not in self.columns:
                self.add(local_name(name), "real").set("caption", name)
        # Where fields are before any change: the first hierarchy must not take the next one along.
        fields = {*self.columns, *self.locals.values()}
        folders = {path: value for path, value in self._changes.items() if path[-1] == "folder"}
        self._folders = {local: self.folder(local) for local in fields}
        self._folders |= {self._known(path): value or "" for path, value in folders.items()}
        for path, value in sorted(self._changes.items(), key=lambda each: _turn(each[0])):
            if path[0] == "hierarchy":
                self._set_hierarchy(path[1], json.loads(value) if value else ())
            elif local := self._known(path):
                self._set(local, path[-1], value)
        self.drop({local_name(name) for name, formula in formulas.items() if not formula})

    def _known(self, path: FieldPath) -> str | None:
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
                    insert_at(column, 0, inner)
                named = with_fields(
                    value or "", lambda each: self._local(unbracketed(each)) or each
                )
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
        """Have a folder show a field, or none; what else its hierarchies have goes along."""
        above, role = self.above(local), self._role(local)
        for each in above:
            self._put(each, name, self.paths, role=role)
        self._put(local, None if above else name, self.items, role=role)
        for each in above:
            self._tidy(each)

    def _put(
        self, of: str, folder: str | None, items: dict[str, list[Element]], *, role: str
    ) -> None:
        """Put a field or a hierarchy into a folder, and take it out of all others."""
        before = items.pop(of, [])
        if kept := [each for each in before if folder is not None and folder_of([each]) == folder]:
            items[of] = kept[:1]
        elif folder is not None:
            folders = self.root
            if not self._has_old_folders:
                folders = self._section("folders-common", _FOLDERS)
            parent = _child(folders, "folder", folder)
            if self._has_old_folders:
                # They hold either dimensions or measures.
                parent.set("role", f"{role}s")
            kind = "drillpath" if items is self.paths else "field"
            item = etree.Element("folder-item", {"name": of, "type": kind})
            insert_at(parent, len(parent), item)
            items[of] = [item]
        # Last, as a folder goes with its last item.
        for each in before:
            if each not in kept[:1]:
                self.take_out(each)

    def _role(self, local: str) -> str:
        role = attributes_of(self.columns.get(local)).get("role")
        return role or default_role(self._types.get(local, ""))

    def _set_hierarchy(self, name: str, members: Sequence[str]) -> None:
        """Set the fields of a hierarchy; their folder stays theirs, come or go."""
        path = _child(self._section("drill-paths"), "drill-path", name)
        old = [each.text or "" for each in path.iterfind("field")]
        new = [self._local(member) or member for member in members]
        # A field that leaves its folder in this edit takes no hierarchy there.
        shown = {local: self._folders.get(local, "") for local in [*new, *old]}
        for each in path.findall("field"):
            path.remove(each)
        # A person's description of it comes after its fields.
        for position, member in enumerate(new):
            field = etree.Element("field")
            field.text = member
            path.insert(position, field)
        if not new:
            self.take_out(path)
        # It stays where it is, as long as it has any of its fields.
        at = folder_of(self.paths.get(name, ())) if {*old} & {*new} else ""
        folder = next(filter(None, (at, *(shown[each] for each in new))), None)
        self._put(name, folder, self.paths, role=self._role(new[0] if new else ""))
        self._tidy(name)
        for each in (one for one in old if one not in new):
            if shown[each] and shown[each] != self.folder(each):
                self._put(each, shown[each], self.items, role=self._role(each))

    def _tidy(self, hierarchy: str) -> None:
        """Take out the fields that their hierarchy shows in the same folder.

        Those that a person has put elsewhere are left to Tableau, which takes them out when
        somebody saves the data source.
        """
        around = folder_of(self.paths.get(hierarchy, ()))
        path = self.hierarchies.get(hierarchy)
        for each in () if path is None else path.findall("field"):
            if around and folder_of(self.items.get(each.text or "", ())) == around:
                self._put(each.text or "", None, self.items, role="")

    def _section(self, tag: str, feature: str | None = None) -> Element:
        """The part of the data source; it is made if there is none."""
        parts = (each for each in reversed(self.root) if tag_of(each) == tag and not is_off(each))
        found = next(parts, None)
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
            insert_at(manifest, len(manifest), etree.Element(f"{prefix}{feature}"))
        return prefix


def _turn(path: FieldPath) -> int:
    """When a value is set: a role depends on the type, and folders on hierarchies."""
    return {"type": 0, "fields": 1, "folder": 3}.get(path[-1], 2)


def _is_formula(path: FieldPath) -> bool:
    return path[::2] == ("calculation", "formula")


def _child(parent: Element, tag: str, name: str) -> Element:
    """The child of this name, which is made if there is none."""
    for each in parent:
        if tag_of(each) == tag and each.get("name") == name:
            return each
    child = etree.Element(tag, {"name": name})
    if parent.tag == "datasource":
        insert(parent, child)
    else:
        insert_at(parent, len(parent), child)
    return child


def _describe(column: Element, text: str | None) -> None:
    for each in column.findall("desc"):
        column.remove(each)
    if text is not None:
        desc = etree.Element("desc")
        insert_at(column, len(column), desc)
        run = etree.SubElement(etree.SubElement(desc, "formatted-text"), "run")
        run.text = text.replace("\n", f"{_LINE_END}\n")


def _users(document: Document, local: str, but: frozenset[FieldPath]) -> Iterator[str]:
    changed = {local_name(path[1]) for path in but if _is_formula(path)}
    for each in document.root:
        inner = each.find("calculation")
        if is_off(each) or is_automatic(each):
            continue
        kind, name = tag_of(each), each.get("name", "")
        if kind == "column" and inner is not None and name not in {*changed, local}:
            if local in fields_in(inner.get("formula", "")) or names_field(inner, local):
                yield f'calculated field "{label(each)}"'
        elif kind == "group" and names_field(each, local):
            yield f'group or set "{label(each)}"'
        elif kind == "filter" and names_field(each, local):
            yield "a filter"
    for name, hierarchy in document.hierarchies.items():
        members = [each.text for each in hierarchy.iterfind("field")]
        if local in members and ("hierarchy", name, "fields") not in but:
            yield f'hierarchy "{name}"'


def pack(tds: bytes, hyper: Path, into: Path) -> None:
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

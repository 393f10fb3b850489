"""Read and edit the fields, columns and hierarchies in a `.tds`; leave the rest unchanged."""

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

from tableau_pipeline.metadata.columns import ColumnAdjustment, TypesByTable
from tableau_pipeline.metadata.document import (
    AGGREGATIONS,
    Document,
    attributes_of,
    bracketed,
    default_role,
    fields_in,
    folder_of,
    hyper_connections,
    insert,
    insert_at,
    is_automatic,
    is_for_old_products,
    local_name,
    names_field,
    parsed,
    set_type,
    tag_of,
    unbracketed,
    visible_name,
    with_fields,
)
from tableau_pipeline.metadata.merge import TAKEN, ConflictPolicy, FieldPath, Merge, Values, merge

_NONE: Values = MappingProxyType({})
# The feature that introduced folders for both dimensions and measures.
_FOLDERS = "SchemaViewerObjectModel"
# The character that Tableau writes before a line break in formatted text.
_LINE_END = "\u00c6"
_ATTRIBUTES = MappingProxyType(
    {
        "caption": "caption",
        "format": "default-format",
        "hidden": "hidden",
        "geo": "semantic-role",
    }
)


class Tds(Document):
    """The content of a `.tds`, to read its metadata and to make edited copies.

    Attributes:
        content: the bytes of the file.

    Raises:
        ValueError: the content is not a `.tds`, has a DTD, or is too large or deep.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(parsed(content))
        self.content = content

    def values(self, wanted: Values = _NONE, written: Sequence[Values] = ()) -> Values:
        """Return the values of all fields, of all hierarchies, and of some calculations.

        Include the calculations that `wanted` or `written` names. Leave out most default values.
        Include a default value if it is in `wanted`, or if each set in `written` has a value for
        its path.

        Args:
            wanted: the declared values.
            written: the sets of values that a refresh may have written last; see `merge`.
        """
        paths = [path for side in (wanted, *written) for path in side]
        calculations = dict.fromkeys(path[1] for path in paths if path[0] == "calculation")
        values = {}
        for path, value, usual in self._values(calculations):
            is_named = written and all(path in side for side in written)
            if value and (value != usual or wanted.get(path) == value or is_named):
                values[path] = value
        return values

    def edited(self, changes: Mapping[FieldPath, str | None], tables: TypesByTable) -> bytes:
        """Return the file with these changes and columns, and otherwise unchanged.

        Args:
            changes: see `Merge.changes`. Changes of columns that `tables` lacks have no effect.
            tables: the columns that the published file will have.

        Raises:
            ValueError: the tables of the `.tds` differ from `tables`, so nothing can be merged.
        """
        root = parsed(self.content)
        before = etree.tostring(root.getroottree())
        ColumnAdjustment(root).follow(tables)
        TdsEdit(root, changes).apply()
        if etree.tostring(root.getroottree()) == before:
            return self.content
        return etree.tostring(root.getroottree(), xml_declaration=True, encoding="utf-8")

    def used_by(self, *name: str, but: Iterable[FieldPath] = ()) -> tuple[str, ...]:
        """Return phrases for objects that use a field, such as calculations, groups and filters.

        Args:
            name: table and column, or the name of a declared calculation.
            but: paths of formulas and hierarchies to leave out, because a refresh changes them.
        """
        local = self.locals.get((name[0], name[1])) if name[1:] else local_name(name[0])
        return tuple(dict.fromkeys(_dependents(self, local, frozenset(but)))) if local else ()

    def shared_names(self) -> set[str]:
        """Return the local names of all fields that share their visible name with another field."""
        shown = self.shown()
        count = Counter(shown.values())
        return {local for local, name in shown.items() if count[name] > 1}

    def taken(self, changes: Iterable[FieldPath]) -> Values:
        """Return a mark `TAKEN` for each applied change that gave a field another field's name."""
        shared, shown, marks = self.shared_names(), self.shown(), {}
        for path in changes if shared else ():
            is_calculation = path[0] == "calculation"
            local = local_name(path[1]) if is_calculation else self.locals.get(path[1:3], "")
            if path[-1] in ("caption", "formula") and local in shared:
                marks[(*(path[:2] if is_calculation else path), TAKEN)] = shown[local]
        return marks

    def work_on(self, path: FieldPath, written: Sequence[Values]) -> Iterator[str]:
        """Yield a phrase for each edit that users made of a column or declared calculation.

        Args:
            path: the path of the column or calculation, with which the paths of all its values
                begin.
            written: the sets of values that a refresh may have written last; see `merge`.
        """
        of_column = path[0] == "field"
        local = self.locals.get((path[1], path[2])) if of_column else local_name(path[1])
        if local is None:
            return
        for value_path, value, usual in self._field(path, local, ""):
            if value not in ("", usual) and all(
                value != values.get(value_path) for values in written
            ):
                part, (first, *_) = value_path[-1], value.splitlines()
                yield part if part == "hidden" else f'{part} "{first}"'
        column = self.columns.get(local)
        if column is not None and column.find("aliases") is not None:
            yield "aliases"

    def _values(self, calculations: Iterable[str]) -> Iterator[tuple[FieldPath, str, str]]:
        """Yield each value of fields, calculations and hierarchies: path, value, default value.

        A value or default value of "" means that there is none.
        """
        names = self.names | {local_name(name): name for name in calculations}
        for record in self.records:
            yield from self._field(
                ("field", record.table, record.column), record.local, record.type
            )
        for name in calculations:
            yield from self._calculation(("calculation", name), name, names)
        for name, element in self.hierarchies.items():
            members = [field.text or "" for field in element.iterfind("field")]
            shown = [names.get(member, member) for member in members]
            yield ("hierarchy", name, "fields"), json.dumps(shown, ensure_ascii=False), ""

    def _field(
        self, path: FieldPath, local: str, datatype: str
    ) -> Iterator[tuple[FieldPath, str, str]]:
        attributes = attributes_of(self.columns.get(local))
        datatype = attributes.get("datatype", datatype)
        usual = {
            "role": default_role(datatype),
            "aggregation": AGGREGATIONS.get(datatype, "Count"),
        }
        values = {part: attributes.get(name, "") for part, name in _ATTRIBUTES.items()}
        values |= {part: attributes.get(part, value) for part, value in usual.items()}
        values["hidden"] = "true" if values["hidden"] == "true" else ""
        values["description"] = _description(self.columns.get(local))
        values["folder"] = self.folder(local)
        for part, value in values.items():
            yield (*path, part), value, usual.get(part, "")

    def _calculation(
        self, path: FieldPath, name: str, names: Mapping[str, str]
    ) -> Iterator[tuple[FieldPath, str, str]]:
        """Yield the values of a declared calculation, or of the user's field that has its name."""

        def shown(formula: str) -> str:
            return with_fields(
                formula, lambda local: bracketed(names[local]) if local in names else local
            )

        ours = self.columns.get(local_name(name))
        if ours is not None and (inner := ours.find("calculation")) is not None:
            datatype = ours.get("datatype", "")
            yield (*path, "formula"), shown(inner.get("formula", "")), ""
            yield (*path, "type"), datatype, "real"
            yield from self._field(path, local_name(name), datatype)
            return
        for other, column in self.columns.items():
            if visible_name(column) == name:
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
    """Merge declared values into a `.tds`; skip values that would give two fields the same name.

    Args:
        wanted: the declared values.
        written, on_conflict: see `merge`.
        found: the values of the `.tds`, and perhaps properties of the data source itself.
        tables: see `Tds.edited`.

    Raises:
        ValueError: the tables of the `.tds` differ from `tables`, or its data are not in Hyper.
    """
    while True:
        result = merge(wanted, written, found, on_conflict=on_conflict)
        edited = tds.edited(result.of_fields, tables)
        if not hyper_connections(tds.root):
            raise ValueError("its data are not in a .hyper file")
        # Repeat the merge without the names that are taken, until no name is taken: a field that is
        # not renamed keeps its old name, which another change may want.
        taken = Tds(edited).taken(result.of_fields) if result.of_fields else {}
        if not taken:
            return replace(result, tds=edited)
        found = {**found, **taken}


def _description(column: Element | None) -> str:
    """Return the text of a description; convert Tableau's line breaks to plain line breaks."""
    runs = () if column is None else column.iterfind("./desc/formatted-text/run")
    return "".join(run.text or "" for run in runs).replace(f"{_LINE_END}\n", "\n").strip()


class TdsEdit(Document):
    """Applies changes to a parsed `.tds` in place."""

    def __init__(self, root: Element, changes: Mapping[FieldPath, str | None]) -> None:
        super().__init__(root)
        self._changes = changes
        self._named = {name: local for local, name in self.names.items()}
        ours = (path[1] for path in changes if path[0] == "calculation")
        self._named |= {name: local_name(name) for name in ours}
        self._types = {record.local: record.type for record in self.records}
        self._folders: dict[str | None, str] = {}
        tags = {tag_of(child) for child in root if not is_for_old_products(child)}
        self._has_old_folders = "folder" in tags and "folders-common" not in tags

    def apply(self) -> None:
        """Apply the changes."""
        formulas = {path[1]: value for path, value in self._changes.items() if _is_formula(path)}
        for name, formula in formulas.items():
            if formula and local_name(name) not in self.columns:
                self.add(local_name(name), "real").set("caption", name)
        # Note the folders before any change: moving one hierarchy must not move another hierarchy
        # that shares a field with it.
        fields = {*self.columns, *self.locals.values()}
        folders = {path: value for path, value in self._changes.items() if path[-1] == "folder"}
        self._folders = {local: self.folder(local) for local in fields}
        self._folders |= {self._local_at(path): value or "" for path, value in folders.items()}
        for path, value in sorted(self._changes.items(), key=lambda change: _rank(change[0])):
            if path[0] == "hierarchy":
                self._set_hierarchy(path[1], json.loads(value) if value else ())
            elif local := self._local_at(path):
                self._set(local, path[-1], value)
        self.drop({local_name(name) for name, formula in formulas.items() if not formula})

    def _local_at(self, path: FieldPath) -> str | None:
        """Return the local name of a field; None if the `.tds` does not have the field."""
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
                formula = with_fields(
                    value or "", lambda name: self._local(unbracketed(name)) or name
                )
                inner.set("formula", formula)
            case _:
                attribute = _ATTRIBUTES.get(part, part)
                if value is None:
                    column.attrib.pop(attribute, None)
                else:
                    column.set(attribute, value)

    def _local(self, name: str) -> str | None:
        """Return the local name of the field with a declared name; None if there is none."""
        # Also look for declared calculations without changes, which `_named` lacks.
        ours = local_name(name)
        return self._named.get(name, ours if ours in self.columns else None)

    def _set_folder(self, local: str, name: str | None) -> None:
        """Move a field and all its hierarchies into a folder; None takes them out of folders."""
        hierarchies, role = self.above(local), self._role(local)
        for hierarchy in hierarchies:
            self._put(hierarchy, name, self.paths, role=role)
        self._put(local, None if hierarchies else name, self.items, role=role)
        for hierarchy in hierarchies:
            self._tidy(hierarchy)

    def _put(
        self, of: str, folder: str | None, items: dict[str, list[Element]], *, role: str
    ) -> None:
        """Move a field or hierarchy into one folder; None removes it from all folders."""
        old = items.pop(of, [])
        if kept := [entry for entry in old if folder is not None and folder_of([entry]) == folder]:
            items[of] = kept[:1]
        elif folder is not None:
            if self._has_old_folders:
                # An old folder contains either dimensions or measures.
                parent = _child(self.root, "folder", folder, role=f"{role}s")
            else:
                folders = self._section("folders-common", _FOLDERS)
                parent = _child(folders, "folder", folder)
            kind = "drillpath" if items is self.paths else "field"
            item = etree.Element("folder-item", {"name": of, "type": kind})
            insert_at(parent, len(parent), item)
            items[of] = [item]
        # Remove the old items last, because removing the last item of a folder also removes the
        # folder.
        for entry in old:
            if entry not in kept[:1]:
                self.take_out(entry)

    def _role(self, local: str) -> str:
        role = attributes_of(self.columns.get(local)).get("role")
        return role or default_role(self._types.get(local, ""))

    def _set_hierarchy(self, name: str, members: Sequence[str]) -> None:
        """Set the fields of a hierarchy; new and removed fields keep their folders."""
        path = _child(self._section("drill-paths"), "drill-path", name)
        old = [field.text or "" for field in path.iterfind("field")]
        new = [self._local(member) or member for member in members]
        # Use the folders that fields will have after all changes, because a field must not move the
        # hierarchy into a folder that the field leaves.
        shown = {local: self._folders.get(local, "") for local in [*new, *old]}
        for element in path.findall("field"):
            path.remove(element)
        # Insert the fields at the beginning of the element, because a description, which a user may
        # have added, must follow the fields.
        for position, member in enumerate(new):
            field = etree.Element("field")
            field.text = member
            path.insert(position, field)
        if not new:
            self.take_out(path)
        # Leave the hierarchy in its folder if at least one field stays in the hierarchy.
        at = folder_of(self.paths.get(name, ())) if {*old} & {*new} else ""
        folder = next(filter(None, (at, *(shown[member] for member in new))), None)
        self._put(name, folder, self.paths, role=self._role(new[0] if new else ""))
        self._tidy(name)
        for member in old:
            if member not in new and shown[member] and shown[member] != self.folder(member):
                self._put(member, shown[member], self.items, role=self._role(member))

    def _tidy(self, hierarchy: str) -> None:
        """Remove the items of a hierarchy's fields from the folder of the hierarchy.

        If a user has put fields into other folders, leave their items to Tableau, which removes the
        items when a user saves the data source.
        """
        folder = folder_of(self.paths.get(hierarchy, ()))
        path = self.hierarchies.get(hierarchy)
        for member in () if path is None else path.findall("field"):
            if folder and folder_of(self.items.get(member.text or "", ())) == folder:
                self._put(member.text or "", None, self.items, role="")

    def _section(self, tag: str, feature: str | None = None) -> Element:
        """Return a section of the data source; create a missing section."""
        parts = (
            part
            for part in reversed(self.root)
            if tag_of(part) == tag and not is_for_old_products(part)
        )
        section = next(parts, None)
        if section is None:
            prefix = self._prefix(feature) if feature else ""
            section = etree.Element(f"{prefix}{tag}")
            insert(self.root, section)
        return section

    def _prefix(self, feature: str) -> str:
        """List a feature in the manifest; return the prefix for the elements of the feature."""
        manifest = self._section("document-format-change-manifest")
        listed = {str(element.tag) for element in manifest}
        prefix = f"_.fcp.{feature}.true..."
        # Use a prefix only if the manifest shows that the file comes from a product that writes the
        # elements of this feature with a prefix.
        is_new = any(
            name.startswith(("_.fcp.ObjectModelEncapsulateLegacy", prefix)) for name in listed
        )
        prefix = prefix if is_new and feature not in listed else ""
        if f"{prefix}{feature}" not in listed:
            insert_at(manifest, len(manifest), etree.Element(f"{prefix}{feature}"))
        return prefix


def _rank(path: FieldPath) -> int:
    """Return the rank of a change: types come before roles, and hierarchies before folders."""
    return {"type": 0, "fields": 1, "folder": 3}.get(path[-1], 2)


def _is_formula(path: FieldPath) -> bool:
    return path[::2] == ("calculation", "formula")


def _child(parent: Element, tag: str, name: str, **attributes: str) -> Element:
    """Return the child with this name and these attributes; create a missing child."""
    attributes = {"name": name, **attributes}
    for child in parent:
        if tag_of(child) == tag and attributes.items() <= attributes_of(child).items():
            return child
    child = etree.Element(tag, attributes)
    if parent.tag == "datasource":
        insert(parent, child)
    else:
        insert_at(parent, len(parent), child)
    return child


def _describe(column: Element, text: str | None) -> None:
    for old in column.findall("desc"):
        column.remove(old)
    if text is not None:
        desc = etree.Element("desc")
        insert_at(column, len(column), desc)
        run = etree.SubElement(etree.SubElement(desc, "formatted-text"), "run")
        run.text = text.replace("\n", f"{_LINE_END}\n")


def _dependents(document: Document, local: str, but: frozenset[FieldPath]) -> Iterator[str]:
    changed = {local_name(path[1]) for path in but if _is_formula(path)}
    for element in document.root:
        inner = element.find("calculation")
        if is_for_old_products(element) or is_automatic(element):
            continue
        kind, name = tag_of(element), element.get("name", "")
        if kind == "column" and inner is not None and name not in {*changed, local}:
            if local in fields_in(inner.get("formula", "")) or names_field(inner, local):
                yield f'calculated field "{visible_name(element)}"'
        elif kind == "group" and names_field(element, local):
            yield f'group or set "{visible_name(element)}"'
        elif kind == "filter" and names_field(element, local):
            yield "a filter"
    for name, hierarchy in document.hierarchies.items():
        members = [field.text for field in hierarchy.iterfind("field")]
        if local in members and ("hierarchy", name, "fields") not in but:
            yield f'hierarchy "{name}"'


def pack(tds: bytes, hyper: Path, into: Path) -> None:
    """Write a `.tdsx` package with the `.hyper` file at the path that the `.tds` names.

    Raises:
        ValueError: the `.tds` has no connection to a `.hyper` file.
    """
    root = parsed(tds)
    connections = hyper_connections(root)
    if not connections:
        raise ValueError("it has no connection to a .hyper file")
    path = PurePosixPath(connections[0].get("dbname", "").replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in str(path) or path.suffix != ".hyper":
        # Change the path, because a package cannot contain a path on another machine.
        path = PurePosixPath("Data/Extracts", hyper.name)
        connections[0].set("dbname", str(path))
        tds = etree.tostring(root.getroottree(), xml_declaration=True, encoding="utf-8")
    with ZipFile(into, "w", ZIP_DEFLATED) as package:
        package.writestr(f"{path.stem}.tds", tds)
        with hyper.open("rb") as source, package.open(str(path), "w", force_zip64=True) as target:
            shutil.copyfileobj(source, target, 2**20)

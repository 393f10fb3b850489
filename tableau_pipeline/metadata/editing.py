"""Changes of values in a `.tds`, each where Tableau's schema has it."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.metadata.columns import (
    default_role,
    folder_items,
    forget,
    local_names,
    place,
    remove,
    scale_of,
    set_type,
    take_out,
)
from tableau_pipeline.metadata.digest import plain, records
from tableau_pipeline.metadata.formulas import field_name, quoted, unquoted, with_fields
from tableau_pipeline.metadata.merge import Path

# The order of elements in a data source, as in Tableau's schema of workbooks.
ORDER = (
    "document-format-change-manifest",
    "repository-location",
    "connection",
    "utility-dimensions",
    "dimension",
    "overridable-settings",
    "aliases",
    "column",
    "column-instance",
    "group",
    "mapped-images",
    "drill-paths",
    "folder",
    "folders-common",
    "folders-parameters",
    "actions",
    "calculated-members",
    "extract",
    "layout",
    "style",
    "semantic-values",
    "date-options",
    "default-date-format",
    "default-sorts",
    "sort-orders",
    "datasource-dependencies",
    "filter",
    "analytic-model",
    "object-graph",
)
_RANKS = MappingProxyType({tag: rank for rank, tag in enumerate(ORDER)})
# The feature that brought folders for dimensions and measures alike.
_FOLDERS = "SchemaViewerObjectModel"
# What Tableau writes before the end of a line in formatted text.
LINE_END = "\u00c6"
ATTRIBUTES = MappingProxyType(
    {"caption": "caption", "format": "default-format", "hidden": "hidden"}
)


def local_name(calculation: str) -> str:
    """Return the name in the `.tds` of a calculation that we make."""
    digest = hashlib.sha256(calculation.encode()).digest()
    # Of the form of Tableau's own.
    return f"[Calculation_{int.from_bytes(digest[:8]) % 10**18:018}]"


class Names:
    """The local names of columns and our calculations, and the names that people write."""

    def __init__(self, root: Element, calculations: Iterable[str]) -> None:
        columns = local_names(root)
        single = len({table for table, _ in columns}) == 1
        self._locals = {local_name(each): each for each in calculations}
        self._locals |= {
            local: field_name(("field", *path), single=single) for path, local in columns.items()
        }
        self._named = {name: local for local, name in self._locals.items()}

    def shown(self, local: str) -> str:
        """Return what people write; the local name of a field that somebody else made."""
        return self._locals.get(local, local)

    def shown_in_brackets(self, local: str) -> str:
        """Return what people write in a formula."""
        return quoted(self._locals[local]) if local in self._locals else local

    def local(self, name: str) -> str | None:
        """Return the local name of what people write; None if there is no such field of ours."""
        return self._named.get(name)


class Editing:
    """Changes of a data source in place."""

    def __init__(self, root: Element, changes: Mapping[Path, str | None]) -> None:
        self._root, self._changes = root, changes
        self._columns = {each.get("name", ""): each for each in root if plain(each) == "column"}
        self._names = Names(root, [path[1] for path in changes if path[0] == "calculation"])
        self._locals = local_names(root)
        self._items = folder_items(root)
        tags = {plain(each) for each in root}
        self._has_old_folders = "folder" in tags and "folders-common" not in tags
        self._types = {
            self._locals[table, column]: texts.get("local-type", "string")
            for table, column, texts in records(root)
        }

    def apply(self) -> None:
        """Make the changes."""
        for path, value in self._changes.items():
            is_formula = path[0] == "calculation" and path[2] == "formula"
            if is_formula and value and local_name(path[1]) not in self._columns:
                self._add(local_name(path[1]), "real").set("caption", path[1])
        # The role depends on the type.
        for path, value in sorted(self._changes.items(), key=lambda each: each[0][-1] != "type"):
            if path[0] == "hierarchy":
                self._set_hierarchy(path[1], json.loads(value) if value else ())
            elif local := self._known(path):
                self._set(local, path[-1], value)
        for path, value in self._changes.items():
            if path[0] == "calculation" and path[2] == "formula" and not value:
                local = local_name(path[1])
                forget(self._root, {local})
                if local in self._columns:
                    remove(self._columns[local])

    def _known(self, path: Path) -> str | None:
        """The local name of a field; None if the published file does not have it."""
        if path[0] == "field":
            return self._locals.get((path[1], path[2]))
        local = local_name(path[1])
        return local if local in self._columns else None

    def _add(self, local: str, datatype: str) -> Element:
        role = default_role(datatype)
        attributes = {"datatype": datatype, "name": local, "role": role}
        column = etree.Element("column", {**attributes, "type": scale_of(role, datatype)})
        insert(self._root, column)
        self._columns[local] = column
        return column

    def _set(self, local: str, part: str, value: str | None) -> None:
        if part == "folder":
            self._set_folder(local, value)
            return
        column = self._columns.get(local)
        if column is None:
            if value is None:
                return
            column = self._add(local, self._types.get(local, "string"))
        match part:
            case "description":
                _describe(column, value)
            case "type":
                set_type(column, value or "real")
            case "role":
                datatype = column.get("datatype", "")
                role = value or default_role(datatype)
                column.set("role", role)
                column.set("type", scale_of(role, datatype))
            case "formula":
                inner = column.find("calculation")
                if inner is None:
                    inner = etree.Element("calculation", {"class": "tableau"})
                    place(column, 0, inner)
                inner.set("formula", with_fields(value or "", self._in_formula))
            case _:
                attribute = ATTRIBUTES.get(part, part)
                if value is None:
                    column.attrib.pop(attribute, None)
                else:
                    column.set(attribute, value)

    def _local(self, name: str) -> str | None:
        if known := self._names.local(name):
            return known
        # A calculation of ours that does not change.
        ours = local_name(name)
        return ours if ours in self._columns else None

    def _in_formula(self, name: str) -> str:
        return self._local(unquoted(name)) or name

    def _set_folder(self, local: str, name: str | None) -> None:
        for item in self._items.pop(local, ()):
            take_out(self._root, item)
        if name is None:
            return
        folders = self._root if self._has_old_folders else self._section("folders-common", _FOLDERS)
        folder = _child(folders, "folder", name)
        if self._has_old_folders:
            # They hold either dimensions or measures.
            column = self._columns.get(local)
            role = default_role(self._types.get(local, "string"))
            folder.set("role", f"{role if column is None else column.get('role', role)}s")
        item = etree.Element("folder-item", {"name": local, "type": "field"})
        place(folder, len(folder), item)
        self._items[local] = [item]

    def _set_hierarchy(self, name: str, members: Sequence[str]) -> None:
        path = _child(self._section("drill-paths"), "drill-path", name)
        for each in list(path):
            path.remove(each)
        for member in members:
            etree.SubElement(path, "field").text = self._local(member) or member
        if not members:
            take_out(self._root, path)

    def _section(self, tag: str, feature: str | None = None) -> Element:
        """The part of the data source; it is made if there is none."""
        found = next((each for each in reversed(self._root) if plain(each) == tag), None)
        if found is None:
            prefix = self._prefix(feature) if feature else ""
            found = etree.Element(f"{prefix}{tag}")
            insert(self._root, found)
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


def insert(root: Element, new: Element) -> None:
    """Insert an element of a data source where Tableau's schema has it."""
    rank = _RANKS[plain(new)]
    position = len(root)
    for each in reversed(root):
        if _RANKS.get(plain(each), rank + 1) <= rank:
            break
        position -= 1
    place(root, position, new)


def _describe(column: Element, text: str | None) -> None:
    for each in column.findall("desc"):
        column.remove(each)
    if text is not None:
        desc = etree.Element("desc")
        place(column, len(column), desc)
        run = etree.SubElement(etree.SubElement(desc, "formatted-text"), "run")
        run.text = text.replace("\n", f"{LINE_END}\n")

"""The actions of another user, by calls of the server's API. No call takes time."""

import json
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from tableauhyperapi import CreateMode, HyperException, Name, TableName
from urllib3 import encode_multipart_formdata

from tableau_pipeline.hyper.process import connect
from tableau_pipeline_tests.refresh.stateful.server.contents import Metadata, hyperd
from tableau_sandbox.options import Options, UserSeed
from tableau_sandbox.simulation import Datasource, Exchange, Simulation

BOSS = UserSeed(name="boss", password="boss-secret", site_role="ServerAdministrator")
_SIGN_IN = (
    b'<tsRequest><credentials name="boss" password="boss-secret"><site contentUrl=""/>'
    b"</credentials></tsRequest>"
)
EVE = UserSeed(name="eve", password="eve-secret")
# The owners that declarations and other users set.
OWNERS = (BOSS.name, EVE.name)
# The capabilities of "All Users" that declarations and other users set.
CAPABILITIES = ("SaveAs", "PulseMetricDefine")
_BOUNDARY = "a-boundary-that-is-in-no-file"
# The changes of rows, and of columns: see `_sql`.
ROWS = ("twice", "empty", "null")
COLUMNS = ("drop", "add")


@dataclass
class OtherUser:
    """An administrator who is not the pipeline's user.

    Attributes:
        folder: the folder for the files that the user sends.
    """

    tableau: Simulation
    folder: Path
    _token: str = ""
    _count: int = 0
    _files: int = 0

    def publishes(self, target: Datasource, change: str, *, mode: str, table: int = 0) -> None:
        """Publish other rows, or other columns, over the data source."""
        try:
            file = self._changed(target, change, table=table)
        except HyperException:
            # hyperd refuses the change: the column is part of a key, or must have values.
            return
        self._publish(target.name, target.project, file, mode=mode)

    def publishes_same_name(self, name: str, project: str) -> None:
        """Publish another data source of this name."""
        file = self._new_file("hyper")
        table = TableName("Extract", "Extract")
        with connect(hyperd(), file, CreateMode.CREATE) as connection:
            connection.catalog.create_schema("Extract")
            connection.execute_command(f"CREATE TABLE {table} AS SELECT 1 AS own")
        self._publish(name, project, file)

    def takes(self, target: Datasource, change: str, *, edited: str) -> None:
        """Delete the data source, and publish its rows, or changed rows, as a new data source."""
        file = self._new_file("hyper")
        shutil.copyfile(self.tableau.hyper_file(target), file)
        with suppress(HyperException):
            file = self._changed(target, change) if change else file
        self.deletes(target)
        self._publish(target.name, target.project, file)
        if edited:
            self.edits(self.tableau.datasources()[-1], edited)

    def updates(self, target: Datasource, change: str, *, table: int = 0, at_once: bool) -> None:
        """Update the rows of a table.

        Args:
            at_once: the job runs at once, instead of waiting for its turn.
        """
        try:
            file = self._changed(target, change, table=table)
        except HyperException:
            return
        name = self._tables(target)[table % len(self._tables(target))]
        named = {"schema": "Extract", "table": name}
        action = {
            f"{side}-{key}": value for side in ("source", "target") for key, value in named.items()
        }
        upload = _id(self._call("POST", "fileUploads"), "uploadSessionId")
        self._send("PUT", f"fileUploads/{upload}", "", file)
        answer = self._call(
            "PATCH",
            f"datasources/{target.luid}/data?uploadSessionId={upload}",
            json.dumps({"actions": [{"action": "replace", **action}]}).encode(),
            {"Content-Type": "application/json", "RequestID": file.stem},
        )
        if at_once and b"<error" not in answer:
            self.tableau.execute(self.tableau.job(_id(answer, "job id")))

    def edits(self, target: Datasource, what: str, table: int = 0) -> None:
        """Download the data source, edit its metadata as Desktop does, and publish it again.

        Args:
            what: a part of a column and the column's name, such as "caption k";
                "calculation", "hierarchy", "folder" or "filter" for a new one on the last
                column that may be dropped; or "unfilter" to remove all filters.
        """
        self._count += 1
        root, (part, _, column) = ElementTree.fromstring(target.tds), what.partition(" ")
        parent = f"[{self._tables(target)[table % len(self._tables(target))]}]"
        records = {
            record.findtext("remote-name", ""): record
            for record in root.iterfind("./connection//metadata-record")
            if record.findtext("parent-name") == parent
        }
        free = [record for name, record in records.items() if name[0] in "ve"]
        record = records.get(column) or [*records.values(), *free][-1]
        local, type_ = record.findtext("local-name", ""), record.findtext("local-type", "")
        # Without the last "_", a search for number 1 would find number 10.
        name, at = f"Work_{self._count}_", [element.tag for element in root].index("aliases")
        if part in ("calculation", "filter"):
            formulas = {"calculation": f"COUNT({local})", "filter": f"USERNAME() = STR({local})"}
            new = ElementTree.Element("column", caption=name, name=f"[{name}]", datatype="integer")
            ElementTree.SubElement(new, "calculation", formula=formulas[part])
            root.insert(at + 1, new)
            if part == "filter":
                rule = ElementTree.SubElement(root, "filter", column=f"[{name}]")
                ElementTree.SubElement(rule, "groupfilter", level=f"[{name}]", member="true")
        elif part == "unfilter":
            secured = [c for c in root.findall("column") if "USERNAME(" in _formula(c)]
            for element in [*root.findall("filter"), *secured]:
                root.remove(element)
        elif part == "hierarchy":
            paths = root.find("drill-paths")
            if paths is None:
                paths = ElementTree.Element("drill-paths")
                root.insert(at + 1, paths)
            path = ElementTree.SubElement(paths, "drill-path", name=name)
            ElementTree.SubElement(path, "field").text = local
        elif part == "folder":
            for element in [*root.iter()]:
                for item in element.findall(f"folder-item[@name='{local}']"):
                    element.remove(item)
            folder = ElementTree.Element("folder", name=name)
            ElementTree.SubElement(folder, "folder-item", name=local, type="field")
            root.insert(at, folder)
        else:
            self._set(root, at, part, local, type_)
        self._publish_with(target, root)

    def _publish_with(self, target: Datasource, root: ElementTree.Element) -> None:
        """Publish the rows of a data source again, with another `.tds`."""
        package = self._new_file("tdsx")
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr(f"{target.name}.tds", ElementTree.tostring(root, "utf-8"))
            archive.write(self.tableau.hyper_file(target), target.packaged_path)
        self._publish(target.name, target.project, package, mode="overwrite")

    def _set(self, root: ElementTree.Element, at: int, part: str, local: str, type_: str) -> None:
        """Set or remove a part of a column."""
        role = "measure" if type_ in ("integer", "real") else "dimension"
        column = next((c for c in root.iterfind("column") if c.get("name") == local), None)
        if column is None:
            column = ElementTree.Element("column", name=local, datatype=type_, role=role)
            root.insert(at + 1, column)
        number = self._count
        match part:
            case "description":
                for description in column.findall("desc"):
                    column.remove(description)
                text = ElementTree.SubElement(
                    ElementTree.SubElement(column, "desc"), "formatted-text"
                )
                ElementTree.SubElement(text, "run").text = f"Work_{number}_"
            case "uncaption":
                column.attrib.pop("caption", None)
            case "role":
                column.set("role", "measure" if column.get("role") == "dimension" else "dimension")
            case "hidden":
                column.set("hidden", "false" if column.get("hidden") == "true" else "true")
            case _:
                name, value = {
                    "caption": ("caption", f"Work_{number}_"),
                    "format": ("default-format", f"n{number}.0"),
                    "aggregation": ("aggregation", "Sum" if number % 2 else "Avg"),
                }[part]
                column.set(name, value)

    def rules(self, target: Datasource) -> Metadata:
        """The permissions of "All Users", as far as histories set them."""
        answer = ElementTree.fromstring(self._call("GET", f"datasources/{target.luid}/permissions"))
        return {
            ("permission", "All Users", capability.get("name", "")): capability.get("mode", "")
            for capability in answer.iter("{http://tableau.com/api}capability")
            if capability.get("name") in CAPABILITIES
        }

    def permits(self, target: Datasource, capability: str) -> None:
        """Deny all users a capability that they were allowed; otherwise allow the capability."""
        before = self.rules(target).get(("permission", "All Users", capability), "")
        group = _id(self._call("GET", "groups?filter=name:eq:All+Users"), "group id")
        path = f"datasources/{target.luid}/permissions"
        if before:
            self._call("DELETE", f"{path}/groups/{group}/{capability}/{before}")
        rule = (
            f"<capability name='{capability}' mode='{'Deny' if before == 'Allow' else 'Allow'}'/>"
        )
        body = f"<granteeCapabilities><group id='{group}'/><capabilities>{rule}</capabilities>"
        body = f"<tsRequest><permissions>{body}</granteeCapabilities></permissions></tsRequest>"
        assert b"<error" not in self._call("PUT", path, body.encode())

    def tags(self, target: Datasource, label: str) -> None:
        body = f'<tsRequest><tags><tag label="{label}"/></tags></tsRequest>'
        self._call("PUT", f"datasources/{target.luid}/tags", body.encode())

    def untags(self, target: Datasource, label: str) -> None:
        if label in target.tags:
            self._call("DELETE", f"datasources/{target.luid}/tags/{label}")

    def describes(self, target: Datasource, _: str) -> None:
        self._count += 1
        self._alter(target, f'<datasource description="Number {self._count}"/>')

    def certifies(self, target: Datasource, how: str) -> None:
        """Certify the data source with a note or without, or withdraw the certification."""
        self._count += 1
        note = f"Work_{self._count}_" * (how == "with a note")
        certified = "false" if how == "no longer" else "true"
        note = f'isCertified="{certified}" certificationNote="{note}"'
        self._alter(target, f"<datasource {note}/>")

    def gives(self, target: Datasource, name: str) -> None:
        user = _id(self._call("GET", f"users?filter=name:eq:{name}"), "user id")
        self._alter(target, f'<datasource><owner id="{user}"/></datasource>')

    def renames(self, target: Datasource, name: str) -> None:
        self._alter(target, f'<datasource name="{name}"/>')

    def moves(self, target: Datasource, project: str) -> None:
        self._alter(target, f'<datasource><project id="{self.project(project)}"/></datasource>')

    def deletes(self, target: Datasource, _: str = "") -> None:
        self._call("DELETE", f"datasources/{target.luid}")

    def cancels(self, chance: Random) -> bool:
        """Cancel an unfinished job. Return whether there was one."""
        unfinished = self.tableau.unfinished()
        if unfinished:
            self._call("PUT", f"jobs/{chance.choice(unfinished).luid}")
        return bool(unfinished)

    def project(self, name: str) -> str:
        """The id of a project, which is created if it is missing."""
        answer = self._call("GET", f"projects?filter=name:eq:{name}")
        if b"<project " not in answer:
            body = f"<tsRequest><project name={quoteattr(name)}/></tsRequest>"
            answer = self._call("POST", "projects", body.encode())
        return _id(answer, "project id")

    def _tables(self, target: Datasource) -> Sequence[str]:
        return sorted(table["name"] for table in json.loads(target.tables))

    def _changed(self, target: Datasource, change: str, *, table: int = 0) -> Path:
        """A copy of the published file in which a table is changed."""
        file = self._new_file("hyper")
        shutil.copyfile(self.tableau.hyper_file(target), file)
        tables = {declared["name"]: declared for declared in json.loads(target.tables)}
        chosen = tables[self._tables(target)[table % len(tables)]]
        with connect(hyperd(), file) as connection:
            connection.execute_command(_sql(chosen, change))
        return file

    def _new_file(self, suffix: str) -> Path:
        self._files += 1
        self.folder.mkdir(exist_ok=True)
        return self.folder / f"theirs-{self._files}.{suffix}"

    def _publish(self, name: str, project: str, file: Path, *, mode: str = "") -> None:
        request = (
            f"<tsRequest><datasource name={quoteattr(name)}><project id='{project}'/>"
            "</datasource></tsRequest>"
        )
        self._send("POST", f"datasources?{mode and f'{mode}=true'}", request, file)

    def _alter(self, target: Datasource, body: str) -> None:
        body = f"<tsRequest>{body}</tsRequest>"
        self._call("PUT", f"datasources/{target.luid}", body.encode())

    def _send(self, method: str, path: str, request: str, file: Path) -> None:
        """Send a request with a file. A site that refuses such files may refuse the request."""
        part = "tableau_file" if "fileUploads" in path else "tableau_datasource"
        parts = {"request_payload": request, part: (file.name, file.read_bytes())}
        body, _ = encode_multipart_formdata(parts, _BOUNDARY)
        kind = f"multipart/mixed; boundary={_BOUNDARY}"
        answer = self._call(method, path, body, {"Content-Type": kind})
        is_taken = b"<error" not in answer
        refusals = (b'"400011"', b'"409094"')
        assert is_taken or any(code in answer for code in refusals), answer.decode()
        file.unlink()

    def _call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return the answer to a call, which may be a refusal."""
        api = f"/api/{Options.rest_version}"
        if not self._token:
            signed_in = Exchange("POST", f"{api}/auth/signin", body=_SIGN_IN)
            self.tableau.answer(signed_in)
            self._token = _id(signed_in.answer, "token")
        exchange = Exchange(
            method,
            f"{api}/sites/{self.tableau.site}/{path}",
            {"X-Tableau-Auth": self._token, **(headers or {})},
            body,
        )
        self.tableau.answer(exchange)
        refused = exchange.status is None or exchange.status >= 500
        assert not refused, exchange.answer.decode()
        return exchange.answer


def _formula(column: ElementTree.Element) -> str:
    calculation = column.find("calculation")
    return "" if calculation is None else calculation.get("formula", "")


def _id(answer: bytes, name: str) -> str:
    """The value of the first attribute of this name in an answer."""
    match = re.search(f'{name}="([^"]+)"', answer.decode())
    assert match, answer.decode()
    return match[1]


def _sql(table: dict, change: str) -> str:
    """The statement that changes a table."""
    name, columns = TableName(table["schema"], table["name"]), table["columns"]
    quoted = [str(Name(column["name"])) for column in columns]
    match change:
        case "twice" if table["row_count"]:
            return f"INSERT INTO {name} SELECT * FROM {name} LIMIT 1"
        case "empty" if table["row_count"]:
            return f"DELETE FROM {name}"
        case "null" if table["row_count"]:
            return f"UPDATE {name} SET {quoted[-1]} = NULL"
        case "drop" if len(columns) > 1:
            return f"ALTER TABLE {name} DROP COLUMN {quoted[-1]}"
        case "add":
            return f"ALTER TABLE {name} ADD COLUMN own INT"
        case _:
            return f"INSERT INTO {name} VALUES ({', '.join('NULL' for _ in columns)})"

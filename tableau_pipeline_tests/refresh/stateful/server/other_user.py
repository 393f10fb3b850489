"""What other people do to the data source, by the calls that all clients have. None takes time."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from tableauhyperapi import CreateMode, HyperException, Name, TableName

from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_sandbox.options import Options, UserSeed
from tableau_sandbox.simulation import Datasource, Exchange, Simulation

BOSS = UserSeed(name="boss", password="boss-secret", site_role="ServerAdministrator")
_SIGN_IN = (
    b'<tsRequest><credentials name="boss" password="boss-secret"><site contentUrl=""/>'
    b"</credentials></tsRequest>"
)
# What people add to the metadata: a calculated field, a folder.
_WORK = (
    "<column caption='{name}' name='[{name}]' datatype='boolean'>"
    "<calculation class='tableau' formula='TRUE' /></column>",
    "<folder name='{name}'><folder-item name='[{column}]' type='field' /></folder>",
)
_BOUNDARY = b"a-boundary-that-is-in-no-file"
# What may become of the rows of a table, and of its columns.
ROWS = ("twice", "empty", "null")
COLUMNS = ("drop", "add")


@dataclass
class OtherUser:
    """An administrator who is not us.

    Attributes:
        folder: for the files that they send.
        work: the names of what they added to metadata, by LUID, and at which moment.
        moment: the present one.
    """

    tableau: Simulation
    folder: Path
    moment: Callable[[], int] = lambda: 0
    work: dict[str, dict[str, int]] = field(default_factory=dict)
    _token: str = ""
    _count: int = 0
    _files: int = 0

    def publishes(self, target: Datasource, change: str, *, mode: str, table: int = 0) -> None:
        """Publish other rows, or other columns, over the data source."""
        try:
            file = self._changed(target, change, table=table)
        except HyperException:
            # Of a column that is a part of a key, or that has to have values.
            return
        self._publish(target.name, target.project, file, mode=mode)

    def publishes_same_name(self, name: str, project: str) -> None:
        """Publish a data source of their own under this name."""
        file = self._new_file("hyper")
        table = TableName("Extract", "Extract")
        with connect(hyper_process(), file, CreateMode.CREATE) as connection:
            connection.catalog.create_schema("Extract")
            connection.execute_command(f"CREATE TABLE {table} AS SELECT 1 AS own")
        self._publish(name, project, file)

    def takes(self, target: Datasource, change: str, *, edited: bool) -> None:
        """Delete it, and publish its rows, or others, as a data source of their own."""
        file = self._new_file("hyper")
        shutil.copyfile(self.tableau.hyper_file(target), file)
        with suppress(HyperException):
            file = self._changed(target, change) if change else file
        self.deletes(target)
        self._publish(target.name, target.project, file)
        if edited:
            self.edits(self.tableau.datasources()[-1])

    def updates(self, target: Datasource, change: str, *, table: int = 0, at_once: bool) -> None:
        """Update the rows of a table, now or when the server gets to it."""
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
        if at_once:
            self.tableau.execute(self.tableau.job(_id(answer, "job id")))

    def edits(self, target: Datasource) -> None:
        """Add something to the metadata, and publish all of it."""
        self._count += 1
        # Digits alone would be found within longer ones.
        name = f"Work_{self._count}_"
        added = _WORK[self._count % len(_WORK)].format(name=name, column=_some_column(target))
        self._edit(target, name, target.tds.replace(b"<aliases", f"{added}<aliases".encode(), 1))

    def captions(self, target: Datasource, column: str) -> None:
        """Give a column another caption, and publish all of the metadata."""
        self._count += 1
        name, root = f"Caption_{self._count}_", ElementTree.fromstring(target.tds)
        for record in root.iterfind("./connection//metadata-record"):
            if record.findtext("remote-name") == column:
                local = record.findtext("local-name", "")
                found = next((e for e in root.iterfind("column") if e.get("name") == local), None)
                if found is None:
                    kind = {"datatype": "string", "role": "dimension", "type": "nominal"}
                    found = ElementTree.Element("column", {"name": local, **kind})
                    root.insert([each.tag for each in root].index("aliases") + 1, found)
                found.set("caption", name)
                self._edit(target, name, ElementTree.tostring(root, "utf-8"))
                return

    def _edit(self, target: Datasource, name: str, edited: bytes) -> None:
        assert edited != target.tds
        package = self._new_file("tdsx")
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr(f"{target.name}.tds", edited)
            archive.write(self.tableau.hyper_file(target), target.packaged_path)
        self._publish(target.name, target.project, package, mode="overwrite")
        self.work.setdefault(target.luid, {})[name] = self.moment()

    def tags(self, target: Datasource, label: str) -> None:
        """Add a tag of their own."""
        body = f'<tsRequest><tags><tag label="{label}"/></tags></tsRequest>'
        self._call("PUT", f"datasources/{target.luid}/tags", body.encode())

    def untags(self, target: Datasource, label: str) -> None:
        """Take a tag away."""
        if label in target.tags:
            self._call("DELETE", f"datasources/{target.luid}/tags/{label}")

    def describes(self, target: Datasource) -> None:
        """Write a description."""
        self._count += 1
        self._alter(target, f'<datasource description="Number {self._count}"/>')

    def renames(self, target: Datasource, name: str) -> None:
        """Give it another name."""
        self._alter(target, f'<datasource name="{name}"/>')

    def moves(self, target: Datasource, project: str) -> None:
        """Put it into another project."""
        self._alter(target, f'<datasource><project id="{self.project(project)}"/></datasource>')

    def deletes(self, target: Datasource) -> None:
        """Delete it."""
        self._call("DELETE", f"datasources/{target.luid}")

    def cancels(self, chance: Random) -> bool:
        """Cancel a job that has not ended; False if there is none."""
        unfinished = self.tableau.unfinished()
        if unfinished:
            self._call("PUT", f"jobs/{chance.choice(unfinished).luid}")
        return bool(unfinished)

    def project(self, name: str) -> str:
        """The id of a project, which is made if it is missing."""
        found = self._call("GET", f"projects?filter=name:eq:{name}")
        if b"<project " not in found:
            body = f"<tsRequest><project name={quoteattr(name)}/></tsRequest>"
            found = self._call("POST", "projects", body.encode())
        return _id(found, "project id")

    def _tables(self, target: Datasource) -> Sequence[str]:
        return sorted(table["name"] for table in json.loads(target.tables))

    def _changed(self, target: Datasource, change: str, *, table: int = 0) -> Path:
        """A copy of what is published, in which a table is another one."""
        file = self._new_file("hyper")
        shutil.copyfile(self.tableau.hyper_file(target), file)
        known = {each["name"]: each for each in json.loads(target.tables)}
        chosen = known[self._tables(target)[table % len(known)]]
        with connect(hyper_process(), file) as connection:
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
        """Send a request with a file; it has to succeed."""
        part = "tableau_file" if "fileUploads" in path else "tableau_datasource"
        contents = {
            'name="request_payload"': request.encode(),
            f'name="{part}"; filename="{file.name}"': file.read_bytes(),
        }
        body = b"".join(
            b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n"
            % (_BOUNDARY, named.encode(), content)
            for named, content in contents.items()
        )
        kind = f"multipart/mixed; boundary={_BOUNDARY.decode()}"
        answer = self._call(method, path, body + b"--%s--\r\n" % _BOUNDARY, {"Content-Type": kind})
        assert b"<error" not in answer, answer.decode()
        file.unlink()

    def _call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """The answer to a call, which may be a refusal."""
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


def _id(answer: bytes, name: str) -> str:
    """The first attribute of an answer that is written so."""
    found = re.search(f'{name}="([^"]+)"', answer.decode())
    assert found, answer.decode()
    return found[1]


def _some_column(target: Datasource) -> str:
    return json.loads(target.tables)[0]["columns"][0]["name"]


def _sql(table: dict, change: str) -> str:
    """A statement that makes a table another one."""
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

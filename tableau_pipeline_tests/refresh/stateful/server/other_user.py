"""What other people do to the data source. None of it takes time."""

import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tableauhyperapi import CreateMode, HyperException, Name, TableName

from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_sandbox.options import UserSeed
from tableau_sandbox.simulation import (
    CREATE_NEW,
    HYPER,
    OVERWRITE,
    PACKAGE,
    Datasource,
    Exchange,
    Simulation,
)

BOSS = UserSeed(name="boss", password="boss-secret", site_role="ServerAdministrator")
_SIGN_IN = (
    '<tsRequest><credentials name="boss" password="boss-secret"><site contentUrl=""/>'
    "</credentials></tsRequest>"
)
# What people add to the metadata: a calculated field, a caption, a folder.
_WORK = (
    "<column caption='{name}' name='[{name}]' datatype='boolean'>"
    "<calculation class='tableau' formula='TRUE' /></column>",
    "<column caption='{name}' name='[{column}]' datatype='string' />",
    "<folder name='{name}'><folder-item name='[{column}]' type='field' /></folder>",
)
# What may become of the rows of a table, and of its columns.
ROWS = ("twice", "empty", "null")
COLUMNS = ("drop", "add")


@dataclass
class OtherUser:
    """An administrator who is not us.

    Attributes:
        work: the names of what they added to metadata, by LUID, and at which moment.
        moment: the present one.
    """

    tableau: Simulation
    moment: Callable[[], int] = lambda: 0
    work: dict[str, dict[str, int]] = field(default_factory=dict)
    _token: str = ""
    _count: int = 0

    def publishes(self, target: Datasource, change: str, *, mode: str, table: int = 0) -> None:
        """Publish other rows, or other columns, over the data source."""
        try:
            file = self._changed(target, change, table=table)
        except HyperException:
            # Of a column that is a part of a key, or that has to have values.
            return
        self._publish(target.name, target.project, file, mode=mode, file_type=HYPER)

    def publishes_same_name(self, name: str, project: str) -> None:
        """Publish a data source of their own under this name."""
        file = self.tableau.new_file()
        table = TableName("Extract", "Extract")
        with connect(hyper_process(), file, CreateMode.CREATE) as connection:
            connection.catalog.create_schema("Extract")
            connection.execute_command(f"CREATE TABLE {table} AS SELECT 1 AS own")
        self._publish(name, project, file, mode=CREATE_NEW, file_type=HYPER)

    def takes(self, target: Datasource, change: str, *, edited: bool) -> None:
        """Delete it, and publish its rows, or others, as a data source of their own."""
        file = self.tableau.new_file()
        shutil.copyfile(self.tableau.hyper_file(target), file)
        with suppress(HyperException):
            file = self._changed(target, change) if change else file
        self.deletes(target)
        self._publish(target.name, target.project, file, mode=CREATE_NEW, file_type=HYPER)
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
        job = self.tableau.queue_update(
            target, [{"action": "replace", **action}], payload=file, user=BOSS.name
        )
        if at_once:
            self.tableau.execute(job)

    def edits(self, target: Datasource) -> None:
        """Add something to the metadata, and publish all of it."""
        self._count += 1
        # Digits alone would be found within longer ones.
        name = f"Work_{self._count}_"
        added = _WORK[self._count % len(_WORK)].format(name=name, column=_some_column(target))
        edited = target.tds.replace(b"<aliases", f"{added}<aliases".encode(), 1)
        assert edited != target.tds
        package = self.tableau.new_file()
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr(f"{target.name}.tds", edited)
            archive.write(self.tableau.hyper_file(target), target.packaged_path)
        self._publish(target.name, target.project, package, mode=OVERWRITE, file_type=PACKAGE)
        self.work.setdefault(target.luid, {})[name] = self.moment()

    def tags(self, target: Datasource, label: str) -> None:
        """Add a tag of their own."""
        body = f'<tsRequest><tags><tag label="{label}"/></tags></tsRequest>'
        self._call("PUT", f"datasources/{target.luid}/tags", body)

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
        """The id of a project on top, which is made if it is missing."""
        return self.tableau.project(name, owner=BOSS.name)

    def _tables(self, target: Datasource) -> Sequence[str]:
        return sorted(table["name"] for table in json.loads(target.tables))

    def _changed(self, target: Datasource, change: str, *, table: int = 0) -> Path:
        """A copy of what is published, in which a table is another one."""
        file = self.tableau.new_file()
        shutil.copyfile(self.tableau.hyper_file(target), file)
        known = {each["name"]: each for each in json.loads(target.tables)}
        chosen = known[self._tables(target)[table % len(known)]]
        with connect(hyper_process(), file) as connection:
            connection.execute_command(_sql(chosen, change))
        return file

    def _publish(self, name: str, project: str, file: Path, *, mode: str, file_type: str) -> None:
        self.tableau.publish(
            file, name=name, project=project, user=BOSS.name, mode=mode, file_type=file_type
        )

    def _alter(self, target: Datasource, body: str) -> None:
        self._call("PUT", f"datasources/{target.luid}", f"<tsRequest>{body}</tsRequest>")

    def _call(self, method: str, path: str, body: str = "") -> None:
        api = f"/api/{self.tableau.rest_version}"
        if not self._token:
            signed_in = Exchange("POST", f"{api}/auth/signin", {}, _SIGN_IN.encode())
            self.tableau.answer(signed_in)
            self._token = signed_in.answer.decode().partition('token="')[2].partition('"')[0]
        headers = {"X-Tableau-Auth": self._token}
        exchange = Exchange(
            method, f"{api}/sites/{self.tableau.site}/{path}", headers, body.encode()
        )
        self.tableau.answer(exchange)
        refused = exchange.status is None or exchange.status >= 500
        assert not refused, exchange.answer.decode()


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

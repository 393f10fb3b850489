"""The actions of other users on the server, between two refreshes."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4
from xml.etree import ElementTree

import pyarrow as pa
import tableauserverclient as TSC

from tableau_pipeline.actions.batch import Batch, Delete, target
from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.refresh.support.models import snapshot
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session
from tableau_sandbox.testing import Sandbox

ANN = ("ann", "ann-secret")
ADMIN = ("admin", "admin")
CALCULATION = (
    "<column caption='Delayed' name='[Calculation_1]' datatype='boolean'>"
    "<calculation class='tableau' formula='[flight_id] &gt; 1' /></column>"
)


def _records(table: str) -> str:
    return "".join(
        f"<metadata-record class='column'><remote-name>{name}</remote-name>"
        f"<parent-name>[{table}]</parent-name></metadata-record>"
        for name in ("flight_id", "carrier", "delay")
    )


_ACCESS = b"[Calculation_123456789012345678]"
_ACCESS_FIELD = (
    b"<column caption='Row access' datatype='boolean' name='" + _ACCESS + b"' role='dimension' "
    b"type='nominal'><calculation class='tableau' formula='LOWER([carrier]) = LOWER(USERNAME())' />"
    b"</column>"
)
_ACCESS_FILTER = (
    b"<filter class='categorical' column='" + _ACCESS + b"' filter-group='2'><groupfilter "
    b"function='member' level='" + _ACCESS + b"' member='true' /></filter>"
)
# Both the database's table and the extract name the columns.
EXTRACT_TDS = (
    "<datasource><connection class='federated'><named-connections><named-connection name='p'>"
    "<connection class='postgres' dbname='air'/></named-connection></named-connections>"
    f"{_records('flights')}</connection>{CALCULATION}<extract enabled='true'>"
    f"<connection class='hyper' dbname='Data/Extracts/e.hyper'>{_records('Extract')}</connection>"
    "</extract></datasource>"
)


def publishes(
    pipeline: Pipeline, rows: pa.Table, *, user: tuple[str, str] = ANN, tag: str = ""
) -> TSC.DatasourceItem:
    """Publish `rows` under the name of our data source, in our project."""
    with session(pipeline.sandbox, *user) as site, TemporaryDirectory() as folder:
        source = snapshot(Path(folder), rows)
        table = TableSource("Extract", source.columns, source.paths)
        extract = build_extract(hyper_process(), Path(folder) / "own.hyper", tables=[table])
        project = site.project(pipeline.declaration.project, create=True)
        item = TSC.DatasourceItem(project, name=pipeline.name)
        published = site.tsc.datasources.publish(item, extract.path, "Overwrite")
        if tag:
            site.tag(str(published.id), [tag])
        return site.tsc.datasources.get_by_id(published.id)


def adds_a_calculated_field(pipeline: Pipeline) -> None:
    """Add a field in Desktop."""
    edits(pipeline, lambda tds: tds.replace(b"<aliases", CALCULATION.encode() + b"<aliases", 1))


def captions_a_column(pipeline: Pipeline, column: str, caption: str) -> None:
    """Set the caption of a column in Desktop; "" removes the caption."""

    def change(tds: bytes) -> bytes:
        root = ElementTree.fromstring(tds)
        found = root.find(f"./column[@name='[{column}]']")
        if found is None:
            found = ElementTree.Element("column", name=f"[{column}]", datatype="string")
            found.attrib |= {"role": "dimension", "type": "nominal"}
            root.insert([each.tag for each in root].index("aliases") + 1, found)
        found.attrib.pop("caption", None)
        found.attrib |= {"caption": caption} if caption else {}
        return ElementTree.tostring(root, "utf-8", xml_declaration=True)

    edits(pipeline, change)


def captions(pipeline: Pipeline) -> dict[str, str]:
    """The captions of columns by name, without the captions of calculated fields."""
    columns = ElementTree.fromstring(pipeline.tds().encode()).iterfind("./column[@caption]")
    shown = {each.get("name", "").strip("[]"): each.get("caption", "") for each in columns}
    return {name: text for name, text in shown.items() if "_" not in name or name == "flight_id"}


def filters_rows(pipeline: Pipeline) -> None:
    """Add a data source filter in Desktop, so that each user sees the rows of their carrier.

    The filter has the form of filters in files of Tableau 2025.1.
    """

    def change(tds: bytes) -> bytes:
        tds = tds.replace(b"<aliases", _ACCESS_FIELD + b"<aliases", 1)
        end = re.search(rb"<(_\.fcp\S+)?object-graph|</datasource>", tds)
        assert end
        return tds[: end.start()] + _ACCESS_FILTER + tds[end.start() :]

    edits(pipeline, change)


def filters_no_rows(pipeline: Pipeline) -> None:
    """Remove the filter of `filters_rows`."""

    def change(tds: bytes) -> bytes:
        tds = re.sub(rb"<filter.*?</filter>", b"", tds, flags=re.DOTALL)
        return re.sub(rb"<column [^>]*Row access.*?</column>", b"", tds, flags=re.DOTALL)

    edits(pipeline, change)


def edits(pipeline: Pipeline, change: Callable[[bytes], bytes]) -> None:
    """Download the data source, change its `.tds` in Desktop, and publish it again."""
    edits_of(pipeline.sandbox, pipeline.name, change)


def edits_of(sandbox: Sandbox, name: str, change: Callable[[bytes], bytes]) -> None:
    """Download the data source of a name, change its `.tds`, and publish it again."""
    with session(sandbox) as site, TemporaryDirectory() as folder:
        (item,) = site.tsc.datasources.filter(name=name)
        package = site.download(str(item.id), Path(folder))
        edited = package.with_name("edited.tdsx")
        with zipfile.ZipFile(package) as old, zipfile.ZipFile(edited, "w") as new:
            for member in old.namelist():
                content = old.read(member)
                new.writestr(member, change(content) if member.endswith(".tds") else content)
        target = TSC.DatasourceItem(item.project_id, name=item.name)
        site.tsc.datasources.publish(target, edited, "Overwrite")


def makes_it_an_extract(pipeline: Pipeline) -> None:
    """Publish our data source again as Desktop's extract of a PostgreSQL table."""
    (item,) = pipeline.found()
    with session(pipeline.sandbox) as site, TemporaryDirectory() as folder:
        package, edited = (
            site.download(str(item.id), Path(folder)),
            Path(folder) / "edited.tdsx",
        )
        with zipfile.ZipFile(package) as old, zipfile.ZipFile(edited, "w") as new:
            (data,) = (each for each in old.namelist() if each.endswith(".hyper"))
            new.writestr("Data/Extracts/e.hyper", old.read(data))
            new.writestr("e.tds", EXTRACT_TDS)
        target = TSC.DatasourceItem(item.project_id, name=item.name)
        site.tsc.datasources.publish(target, edited, "Overwrite")


def connects_to_a_database(pipeline: Pipeline) -> None:
    """Publish our data source again with a live connection to a PostgreSQL table."""
    (item,) = pipeline.found()
    with session(pipeline.sandbox) as site, TemporaryDirectory() as folder:
        file = Path(folder) / "live.tds"
        file.write_text(
            "<datasource><connection class='federated'><named-connections><named-connection "
            "name='p'><connection class='postgres' dbname='air'/></named-connection>"
            f"</named-connections>{_records('Extract')}</connection>{CALCULATION}</datasource>"
        )
        target = TSC.DatasourceItem(item.project_id, name=item.name)
        site.tsc.datasources.publish(target, file, "Overwrite")


def deletes_a_flight(sandbox: Sandbox, luid: str) -> None:
    """Delete a published row by an action batch."""
    batch = Batch([Delete(target="Extract", where=target("flight_id") == 1)])
    with session(sandbox) as site:
        site.update(luid, batch=batch.json(), upload=None, request_id=str(uuid4()))
    sandbox.wait_until_idle()


def changes_the_file(pipeline: Pipeline, sql: str) -> None:
    """Change published rows in the file of the server, which does not notice the change."""
    (item,) = pipeline.found()
    path = pipeline.sandbox.hyper_file(str(item.id))
    with open_hyper(path, "a", hyper=hyper_process()) as file:
        file.execute(sql)


def changes(pipeline: Pipeline, *, name: str = "", project: str = "") -> None:
    """Rename our data source, or move it to another project."""
    (item,) = pipeline.found()
    with session(pipeline.sandbox) as site:
        if name:
            item.name = name
        if project:
            item.project_id = site.project(project, create=True)
        site.tsc.datasources.update(item)


def describes(pipeline: Pipeline) -> None:
    """Change the description of our data source, which moves its time stamp."""
    (item,) = pipeline.found()
    with session(pipeline.sandbox) as site:
        item.description = f"As of {item.updated_at}"
        site.tsc.datasources.update(item)


def deletes(pipeline: Pipeline) -> None:
    """Delete our data source."""
    (item,) = pipeline.found()
    with session(pipeline.sandbox) as site:
        site.tsc.datasources.delete(str(item.id))


def content(site: TableauSite, luid: str) -> tuple[bytes, object]:
    """The content of a data source, and its description by the server."""
    with (
        TemporaryDirectory() as folder,
        zipfile.ZipFile(site.download(luid, Path(folder))) as file,
    ):
        members = b"".join(file.read(member) for member in sorted(file.namelist()))
    return members, site.find_by_luid(luid)


def tags(pipeline: Pipeline, tag: str) -> None:
    """Tag our data source."""
    (item,) = pipeline.found()
    pipeline.eyes.tag(str(item.id), [tag])


def may_write(pipeline: Pipeline, user: str) -> None:
    """Let a user read, overwrite and download our data source."""
    (item,) = pipeline.found()
    luid, capability = pipeline.eyes_id(user), TSC.Permission.Capability
    rule = TSC.PermissionsRule(
        grantee=TSC.UserItem.as_reference(luid),
        capabilities=dict.fromkeys(
            (capability.Read, capability.Write, capability.ExportXml), TSC.Permission.Mode.Allow
        ),
    )
    pipeline.eyes.tsc.datasources.update_permissions(item, [rule])


def gives(pipeline: Pipeline, user: str) -> None:
    """Give our data source to a user."""
    (item,) = pipeline.found()
    item.owner_id = pipeline.eyes_id(user)
    pipeline.eyes.tsc.datasources.update(item)

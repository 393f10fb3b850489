"""Packages with a `.tds` of our own are published, read back and counted."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tableauserverclient as TSC
from lxml import etree

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.hyper.types import Column, hyper_type
from tableau_pipeline.metadata.columns import TypesByTable
from tableau_pipeline.metadata.contents import read_metadata
from tableau_pipeline.metadata.new_document import new_tds
from tableau_pipeline.metadata.tds import Tds, pack
from tableau_pipeline.publishing.packages import unpack
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import hooked
from tableau_pipeline_tests.publishing.test_counts import CUSTOMERS, ORDERS, TYPES

REGIONS = pa.table({"id": [1, 2], "region": ["N", "S"]})
OF_CUSTOMERS = Relationship("orders", "customers", (("id", "id"),))
OF_REGIONS = Relationship("customers", "regions", (("id", "id"),))


@dataclass(frozen=True)
class Package:
    """A `.hyper` file with its tables, and the `.tds` for the file."""

    tables: TypesByTable
    hyper: Path
    tds: bytes

    def published(self, site: TableauSite, tds: bytes = b"") -> str:
        """Publish the file with its own `.tds` or another one; return the data source's LUID."""
        package = self.hyper.with_suffix(".tdsx")
        pack(tds or self.tds, self.hyper, package)
        item = TSC.DatasourceItem(
            site.project("Default", create=False), name=f"Packed {uuid4().hex[:8]}"
        )
        return str(site.tsc.datasources.publish(item, package, "CreateNew").id)


def packed(folder: Path, tables: Mapping[str, pa.Table], *edges: Relationship) -> Package:
    sources, types = [], {}
    for name, rows in tables.items():
        file = folder / f"{uuid4().hex}.parquet"
        pq.write_table(rows, file)
        columns = tuple(Column(field.name, TYPES[str(field.type)]) for field in rows.schema)
        sources.append(TableSource(name, columns, (str(file),)))
        types[name] = [(each.name, hyper_type(each, table=name)) for each in columns]
    file = folder / f"{uuid4().hex}.hyper"
    build_extract(hyper_process(), file, tables=sources, relationships=edges)
    return Package(types, file, new_tds(types, edges, extract_path="Data/Extracts/Shop.hyper"))


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A package of orders and their customers."""
    tables = {"orders": ORDERS, "customers": CUSTOMERS}
    return packed(tmp_path_factory.mktemp("star"), tables, OF_CUSTOMERS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_published_and_read_back(tableau: TableauSite, tmp_path: Path, count: int):
    """Prevents: a published package has other columns, rows or relationships than its file."""
    names = ("orders", "customers", "regions") if count > 1 else ("Extract",)
    data = dict(zip(names[:count], (ORDERS, CUSTOMERS, REGIONS), strict=False))
    edges = (OF_CUSTOMERS, OF_REGIONS)[: count - 1]
    package = packed(tmp_path, data, *edges)
    luid = package.published(tableau)
    held, sent = tableau.metadata(luid), read_metadata(package.tds)
    assert (held.digest, held.columns, held.work) == (sent.digest, sent.columns, {})
    ends = [
        [each.get("object-id", "").partition(" ")[0] for each in edge.findall("./*[@object-id]")]
        for edge in etree.fromstring(held.tds).iter("relationship")
    ]
    assert ends == [[edge.many, edge.one] for edge in edges]
    back = tmp_path / "back.hyper"
    with back.open("wb") as file:
        unpack(tableau.download(luid, tmp_path), ".hyper", file, limit=10**9)
    with open_hyper(back, hyper=hyper_process()) as opened:
        rows = {each.name.unescaped: opened.read(each).num_rows for each in opened.table_names()}
    assert rows == {name: each.num_rows for name, each in data.items()}
    for key in (None, "id"):
        assert tableau.count(luid, dict.fromkeys(data, key)) == rows


def test_declared_metadata_come_along(tableau: TableauSite, star: Package):
    """Prevents: the server drops the captions in a package."""
    path = ("field", "customers", "id", "caption")
    tds = Tds(star.tds).edited({path: "Customer"}, star.tables)
    held = tableau.metadata(star.published(tableau, tds))
    assert Tds(held.tds).values()[path] == "Customer"
    assert held.digest == read_metadata(tds).digest


def with_ids(package: Package, form: str) -> bytes:
    """The `.tds` with other table ids. `form` is the pattern of the ids."""
    text, ids = package.tds.decode(), re.compile(r"(\w+) \(Extract\.\w+\)_([0-9A-F]{32})")
    return ids.sub(lambda found: form.format(found[1], found[2], short=found[2][:8]), text).encode()


@pytest.mark.parametrize(
    "form",
    [
        "{0} (Extract.{0})_{1}",
        "{0} (shop.Extract.{0})_{1}",
        "{0}_{1}",
        "{0}_{short}",
        "{0} (Extract.{0})",
        "{0}",
    ],
)
def test_ids_of_tables(tableau: TableauSite, star: Package, form: str):
    """Prevents: rows cannot be counted because another product has made the table ids."""
    luid = star.published(tableau, with_ids(star, form))
    for key in (None, "id"):
        assert tableau.count(luid, dict.fromkeys(star.tables, key)) == {"orders": 4, "customers": 2}


def model_of(site: TableauSite, *captions: tuple[str, str]) -> Any:
    """Let the server describe its tables with these ids and captions."""
    tables = [{"logicalTableId": id_, "caption": caption} for id_, caption in captions]

    def answered(response: Any, **_: Any) -> None:
        if response.url.endswith("get-datasource-model"):
            response.status_code = 200
            response._content = json.dumps({"logicalTables": tables}).encode()

    return hooked(site, answered)


def test_captions_tell_tables_of_other_ids(tableau: TableauSite, star: Package):
    """Prevents: with a table id of an unknown form, a count fails or counts another table."""
    luid, asked = star.published(tableau, with_ids(star, "{short}")), dict.fromkeys(star.tables)
    ids = [
        each.get("id", "") for each in etree.fromstring(with_ids(star, "{short}")).iter("object")
    ]
    none = pytest.raises(RefreshError, match="the server shows no table orders, or several")
    with none:
        tableau.count(luid, asked)
    with model_of(tableau, (ids[0], "orders"), (ids[1], "customers")):
        assert tableau.count(luid, asked) == {"orders": 4, "customers": 2}
    with model_of(tableau, (ids[0], "customers"), (ids[1], "orders")):
        assert tableau.count(luid, asked) == {"orders": 2, "customers": 4}
    with model_of(tableau, (ids[0], "orders"), (ids[1], "orders")), none:
        tableau.count(luid, asked)


def test_an_id_beats_an_edited_caption(tableau: TableauSite, star: Package):
    """Prevents: the pipeline counts another table because a person has edited a caption."""
    luid = star.published(tableau)
    one, two = (each.get("id", "") for each in etree.fromstring(star.tds).iter("object"))
    with model_of(tableau, (one, "customers"), (two, "orders")):
        assert tableau.count(luid, {"orders": None, "customers": None})["orders"] == 4

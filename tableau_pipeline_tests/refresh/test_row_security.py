"""Row-level security: a refresh keeps user filters and user functions, or publishes nothing."""

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pytest
import tableauserverclient as TSC

from tableau_pipeline.core.declaration import Entitlements, Guard, Republish, Table
from tableau_pipeline.core.fields import FieldMetadata
from tableau_pipeline.core.policies import ReplaceAll
from tableau_pipeline.errors import RefreshError, UnreadableError
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.metadata.contents import Metadata, read_metadata
from tableau_pipeline.outcome import Accept
from tableau_pipeline.publishing.rest import list_revisions
from tableau_pipeline.refresh.decide import Options, Refuse
from tableau_pipeline.refresh.refresh import plan, refresh
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.metadata.row_filters import ROW_FILTERS, RowFilter, filtered
from tableau_pipeline_tests.metadata.shapes import USER
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_pipeline_tests.refresh.support.shipping import refused

pytestmark = pytest.mark.few_variants(1)
BOTH = {'the filter on "Row access"', '"Row access", which uses USERNAME()'}
ALL = frozenset(Accept) - {Accept.FILTER, Accept.TAKEOVER}


def filters(pipeline: Pipeline) -> set[str]:
    return set(read_metadata(pipeline.tds().encode()).filters)


def secured(pipeline: Pipeline) -> str:
    """Publish, add a filter as in Tableau Desktop, and return the LUID of the data source."""
    pipeline.policy(ReplaceAll())
    pipeline.run()
    other_users.filters_rows(pipeline)
    assert filters(pipeline) == BOTH
    return str(pipeline.found()[0].id)


def revisions(pipeline: Pipeline, luid: str) -> int:
    return len(list_revisions(pipeline.eyes.tsc, luid))


@pytest.mark.parametrize("accept", [(), sorted(ALL)], ids=["usual", "all"])
def test_every_publish_brings_the_filter(pipeline: Pipeline, accept: list[Accept]):
    """Prevents: during or after a full publish, all users see all rows."""
    luid = secured(pipeline)
    changes = [
        lambda: pipeline.model("flights", flights(9)),
        lambda: pipeline.declare(republish=Republish(after=1)),
        lambda: pipeline.model("flights", flights(5)),
        lambda: pipeline.policy(ReplaceAll(), fields=(FieldMetadata("delay", caption="Late"),)),
    ]
    for change in changes:
        change()
        before = revisions(pipeline, luid)
        report = pipeline.run(*accept, full=True)
        # Each publish is a single request: between two, the data source would have no filter.
        assert revisions(pipeline, luid) == before + 1
        assert report.decision == "publish (overwrite)"
        assert filters(pipeline) == BOTH
        assert pipeline.wrong() == []


def test_a_column_of_the_filter_cannot_go(pipeline: Pipeline):
    """Prevents: a refresh drops a column that a filter uses, because users accept every change."""
    luid = secured(pipeline)
    before = revisions(pipeline, luid)
    pipeline.model("flights", flights(9).drop_columns("carrier"))
    expected = "would lose", 'the filter on "Row access"', "as a field that it uses goes"
    refused(lambda: pipeline.run(*ALL, full=True), *expected)
    refused(lambda: pipeline.run(*Accept), *expected)
    assert (filters(pipeline), revisions(pipeline, luid)) == (BOTH, before)


def test_work_that_goes_is_saved(pipeline: Pipeline):
    """Prevents: a publish that keeps the filter drops a calculation, and saves no copy."""
    secured(pipeline)
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights(9).drop_columns("flight_id"))
    report = pipeline.run(Accept.OVERWRITE, Accept.SCHEMA)
    assert filters(pipeline) == BOTH
    assert "was saved as" in str(report.warnings)


@pytest.mark.slow
def test_a_filter_that_is_gone(pipeline: Pipeline):
    """Prevents: a filter is gone, and no refresh notices that all users see all rows."""
    secured(pipeline)
    pipeline.run()
    other_users.filters_no_rows(pipeline)
    for rows in (9, 10):
        pipeline.model("flights", flights(rows))
        refused(lambda: pipeline.run(*ALL), 'the filter on "Row access"', "accept: [filter]")
    pipeline.run(Accept.FILTER)
    assert pipeline.wrong() == []
    assert pipeline.run().decision == "no change"


@pytest.mark.slow
def test_what_is_there_is_not_accepted_as_gone(pipeline: Pipeline):
    """Prevents: after `accept: [filter]`, no refresh notices the loss of an existing filter."""
    secured(pipeline)
    pipeline.run()
    pipeline.model("flights", flights(9))
    assert pipeline.run(Accept.FILTER).decision == "update"
    pipeline.run()
    other_users.filters_no_rows(pipeline)
    refused(pipeline.run, 'the filter on "Row access"', "accept: [filter]")


@pytest.mark.slow
def test_a_data_source_that_is_gone_with_its_filter(pipeline: Pipeline):
    """Prevents: a refresh publishes a deleted data source again, without its filter."""
    luid = secured(pipeline)
    pipeline.run()
    pipeline.eyes.tsc.datasources.delete(luid)
    refused(pipeline.run, "was deleted with it")
    assert pipeline.found() == []
    assert pipeline.run(Accept.FILTER).decision == "publish (create)"
    assert pipeline.run().decision == "no change"


@pytest.mark.slow
def test_another_of_its_name(pipeline: Pipeline):
    """Prevents: a data source is replaced, and a refresh ignores that the filter is gone."""
    luid = secured(pipeline)
    pipeline.run()
    pipeline.eyes.tsc.datasources.delete(luid)
    other_users.publishes(pipeline, flights())
    pipeline.declare(adopt=True)
    refused(lambda: pipeline.run(*ALL), 'the filter on "Row access"', "accept: [filter]")
    assert pipeline.run(Accept.FILTER).decision.startswith("publish")


def test_two_filters_of_one_field(pipeline: Pipeline):
    """Prevents: the second filter of a field hides that the first filter is gone."""
    secured(pipeline)
    one = read_metadata(pipeline.tds().encode()).filters
    other_users.filters_rows(pipeline)
    two = read_metadata(pipeline.tds().encode()).filters
    name = 'the filter on "Row access"'
    assert two[name] == one[name] * 2


@pytest.mark.slow
def test_a_filter_that_cannot_be_read(pipeline: Pipeline):
    """Prevents: a publish drops a filter, because a refresh cannot read the metadata."""
    secured(pipeline)
    pipeline.run()
    pipeline.model("flights", flights(9))
    other_users.deletes_a_flight(pipeline.sandbox, str(pipeline.found()[0].id))
    pipeline.sandbox.wait_until_idle()

    class Unreadable(Proxy):
        def metadata(self, luid: str) -> Metadata:
            raise UnreadableError(f"{luid} cannot be read.")

    around = {"around_server": Unreadable}
    refused(lambda: pipeline.run(*ALL, full=True, around=around), "its metadata cannot be read")
    assert filters(pipeline) == BOTH


class Forgetful(Proxy):
    """A server that drops the filters of published files."""

    def upload(self, file: Path, **more: Any) -> str:
        with ZipFile(file) as package:
            contents = {name: package.read(name) for name in package.namelist()}
        with ZipFile(file, "w") as package:
            for name, content in contents.items():
                is_tds = name.endswith(".tds")
                package.writestr(name, _FILTER.sub(b"", content) if is_tds else content)
        return self.behind.upload(file, **more)


_FILTER = re.compile(rb"<filter .*?</filter>", re.DOTALL)


def test_a_filter_that_the_server_does_not_keep(pipeline: Pipeline):
    """Prevents: a server drops the filter of a publish, and refreshes still succeed."""
    secured(pipeline)
    pipeline.model("flights", flights(9))
    with pytest.raises(RefreshError, match=r"did not keep .*the filter on \"Row access\""):
        pipeline.run(full=True, around={"around_server": Forgetful})
    assert filters(pipeline) != BOTH
    for _ in range(2):
        refused(lambda: pipeline.run(*ALL), 'the filter on "Row access"', "accept: [filter]")


# Filters in the forms in which Tableau's products save them.


def orders(rows: int) -> pa.Table:
    numbers = range(rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "net": pa.array([float(number) for number in numbers]),
            "city": pa.array([("Rome", "Oslo")[number % 2] for number in numbers]),
            "day": pa.array([date(2025, 1, 1 + number) for number in numbers]),
        }
    )


def saves(pipeline: Pipeline, has: RowFilter) -> None:
    """Save the data source with this filter, as Tableau Desktop does."""
    fields, mark, condition = has.xml.partition("<filter")

    def change(tds: bytes) -> bytes:
        text = tds.decode().replace("</datasource>", f"{mark}{condition}</datasource>")
        text = text.replace("<layout", f"{fields}<layout", 1)
        if "xmlns:user=" not in text:
            text = text.replace("<datasource ", f"<datasource xmlns:user='{USER}' ", 1)
        return text.encode()

    other_users.edits(pipeline, change)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ["members", "last days", "a set", "a user function", "a user filter"]
)
def test_every_form_survives(pipeline: Pipeline, form: str):
    """Prevents: a full publish drops a filter that a user has made, or always fails."""
    has = ROW_FILTERS[form]
    pipeline.model("flights", orders(3))
    pipeline.policy(ReplaceAll())
    pipeline.run()
    saves(pipeline, has)
    before = read_metadata(pipeline.tds().encode()).filters
    assert sorted(before) == sorted(has.names)
    fields = tuple(
        FieldMetadata(
            name, caption=f"Our {name}", description="Of orders", hidden=True, folder="Ours"
        )
        for name in has.uses
    )
    pipeline.policy(ReplaceAll(), fields=fields)
    pipeline.model("flights", orders(5).drop_columns("id").append_column("gate", [["A"] * 5]))
    report = pipeline.run(Accept.SCHEMA, full=True)
    assert report.decision == "publish (overwrite)"
    assert read_metadata(pipeline.tds().encode()).filters == before
    shown = other_users.captions(pipeline)
    assert {shown.get(name) for name in has.uses} == {f"Our {name}" for name in has.uses}
    assert pipeline.wrong() == []
    assert pipeline.run().decision == "no change"
    pipeline.policy(ReplaceAll(), fields=())
    pipeline.model("flights", orders(6).drop_columns(["id", has.uses[0]]))
    refused(lambda: pipeline.run(*Accept, full=True), "would lose", *has.names)


def test_a_filter_of_other_tables(pipeline: Pipeline, tmp_path: Path):
    """Prevents: an adoption replaces tables that a filter names, or a refusal hides the reason."""
    live = filtered(ROW_FILTERS["a user filter"]).tds.replace("class='hyper'", "class='postgres'")
    (tmp_path / "live.tds").write_text(live, "utf-8")
    project = pipeline.eyes.project(pipeline.declaration.project, create=True)
    item = TSC.DatasourceItem(project, name=pipeline.name)
    pipeline.eyes.tsc.datasources.publish(item, tmp_path / "live.tds", "Overwrite")
    pipeline.declare(adopt=True)
    expected = 'the user filter "Cities of users"', "its tables are Orders", "or another name"
    refused(lambda: pipeline.run(*Accept, full=True), *expected)
    assert len(filters(pipeline)) == 2


# Guarded data sources, which wait for their filters.


def held(pipeline: Pipeline, report: Refreshed) -> bool:
    """Return whether the data source is empty and the refresh warns about the missing filter."""
    rows = report.checkpoint.rows if report.checkpoint else None
    return rows == {"flights": 0} and "has no rows yet (guarded: true)" in str(report.warnings)


@pytest.mark.slow
def test_no_rows_before_there_is_a_filter(pipeline: Pipeline):
    """Prevents: between a guarded first publish and the filter, all users see all rows."""
    pipeline.declare(guarded=True)
    first = pipeline.run()
    assert first.decision == "publish (create)"
    assert held(pipeline, first)
    for rows in (9, 4):
        pipeline.model("flights", flights(rows))
        again = pipeline.run()
        assert again.decision == "no change"
        assert held(pipeline, again)
    other_users.filters_rows(pipeline)
    done = pipeline.run()
    assert done.warnings == ()
    assert pipeline.wrong() == []
    assert filters(pipeline) == BOTH
    assert pipeline.run().decision == "no change"


@pytest.mark.slow
def test_rows_that_are_there_need_a_filter(pipeline: Pipeline):
    """Prevents: `guarded: true` ignores rows that all users can see, or removes the rows."""
    pipeline.run()
    pipeline.declare(guarded=True)
    pipeline.model("flights", flights(9))
    refused(pipeline.run, "guarded: true", "accept: [filter]")
    assert pipeline.run(Accept.FILTER).decision.startswith("update")
    pipeline.model("flights", flights(10))
    refused(pipeline.run, "guarded: true")
    other_users.filters_rows(pipeline)
    pipeline.run()
    assert pipeline.wrong() == []


def test_a_guarded_name_that_is_taken(pipeline: Pipeline):
    """Prevents: users make a filter, and then learn that the data source is not ours."""
    other_users.publishes(pipeline, flights())
    pipeline.declare(guarded=True)
    refused(pipeline.run, "adopt: true")


@pytest.mark.slow
def test_a_guarded_data_source_that_was_deleted(pipeline: Pipeline):
    """Prevents: a guarded data source was deleted, and its next publish shows rows to all."""
    pipeline.declare(guarded=True)
    pipeline.run()
    other_users.filters_rows(pipeline)
    pipeline.run()
    pipeline.eyes.tsc.datasources.delete(str(pipeline.found()[0].id))
    refused(pipeline.run, "was deleted with it")
    assert held(pipeline, pipeline.run(Accept.FILTER))


@pytest.mark.slow
def test_a_rollback_waits_for_the_filter(pipeline: Pipeline):
    """Prevents: a rollback publishes the rows of a guarded data source without its filter."""
    pipeline.run()
    pipeline.eyes.tsc.datasources.delete(str(pipeline.found()[0].id))
    pipeline.declare(guarded=True)
    pipeline.run()
    version = pipeline.journal.history().recovered.record
    assert version
    (table,) = version.tables.values()
    assert table.content.rows == 0
    expected = "guarded: true"
    to = next(c for c in pipeline.journal.checkpoints() if c.tables["flights"].content.rows)
    refused(lambda: refresh(pipeline.refresh(), Options(to=to)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("are_recorded", [True, False], ids=["recorded", "not recorded"])
def test_a_plan_that_asks_no_server(pipeline: Pipeline, are_recorded: bool):
    """Prevents: an offline plan asks for a filter that exists, or for a right to read metadata."""
    secured(pipeline)
    if not are_recorded:
        # Without the journal, no record has a digest of the metadata.
        pipeline.journal.forget()
    pipeline.declare(guarded=True)
    pipeline.run()
    for options in (Options(), Options(full=True)):
        assert not isinstance(plan(pipeline.refresh(), options, offline=True).plan, Refuse)


# Tables of entitlements, which tell the filter who may see which rows.


ACCESS = pa.table({"user_name": ["ann", "bob"], "carrier": ["AA", "UA"]})


def entitled(pipeline: Pipeline, access: pa.Table = ACCESS, **more: Any) -> None:
    """Declare two tables; the table "access" holds the entitlements."""
    pipeline.declare(
        tables=(Table("flights", "flights"), Table("access", "access", guard=Guard(0, 1.0))),
        relationships=(Relationship("flights", "access", (("carrier", "carrier"),)),),
        entitlements=Entitlements("access", "user_name", **more),
    )
    pipeline.model("access", access)


def people(*names: str | None) -> pa.Table:
    carriers = pa.array([f"C{number}" for number in range(len(names))], pa.string())
    return pa.table({"user_name": pa.array(names, pa.string()), "carrier": carriers})


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        (people(), "0 rows, fewer than guard.min_rows (1)"),
        (people("ann", None), "in some rows, the user is NULL or blank"),
        (people("ann", "  "), "in some rows, the user is NULL or blank"),
        (people("zoe", "yan"), "the site has none of the 2 users"),
        (people("ann").drop_columns("user_name"), "it does not exist"),
        (pa.table({"user_name": [1], "carrier": ["AA"]}), "it is bigint"),
    ],
    ids=["empty", "NULL", "blank", "strangers", "no column", "numbers"],
)
def test_entitlements_that_lock_out(pipeline: Pipeline, access: pa.Table, expected: str):
    """Prevents: a wrong table of entitlements hides all rows from users, or shows all rows."""
    entitled(pipeline, access)
    refused(pipeline.run, expected)
    assert pipeline.found() == []


@pytest.mark.slow
def test_entitlements_that_shrink(pipeline: Pipeline):
    """Prevents: a table of entitlements loses rows, and many users see nothing."""
    entitled(pipeline, people(*"abcdefghi", "ANN"))
    pipeline.run()
    pipeline.model("access", people(*"abcdefg", "ann"))
    refused(pipeline.run, "10 are published", "max_shrink is 20%")
    pipeline.model("access", people(*"abcdefgh", "domain\\ann"))
    pipeline.run()
    pipeline.model("flights", flights(9))
    pipeline.model("access", people(*"abcdefghi"))
    refused(pipeline.run, "the site has none of the 9 users")


def test_entitlements_where_users_are_hidden(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a pipeline whose user is no administrator cannot publish entitlements."""
    pipeline = new_pipeline(user=other_users.ANN)
    entitled(pipeline, people("zoe"))
    pipeline.run()

from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_pipeline_tests.sandbox.samples import (
    default_project,
    execute,
    publish,
    rows_on_server,
    tds_of,
    write_hyper,
)


@pytest.fixture
def more(tmp_path: Path) -> Path:
    """A file with one more row, its columns in another order."""
    return write_hyper(tmp_path / "more.hyper", "SELECT 'three' AS name, 3 AS id")


def test_rows_are_added(server: tsc.Server, tmp_path: Path, one_row: Path, more: Path):
    # Prevents: an append replaces the rows, mixes up columns, or makes another data source.
    with pytest.raises(tsc.ServerResponseError, match="404004"):
        publish(server, more, mode="Append")
    first = publish(server, one_row)
    metadata = tds_of(server, first.id, tmp_path)
    assert publish(server, more, mode="Append").id == first.id
    assert rows_on_server(server, first.id) == [[1, "one"], [3, "three"]]
    assert tds_of(server, first.id, tmp_path) == metadata


def test_rows_are_added_by_a_job_and_in_blocks(
    server: tsc.Server, one_row: Path, more: Path, monkeypatch: pytest.MonkeyPatch
):
    # Prevents: a file too large for one request is refused, or appended twice.
    first = publish(server, one_row)
    monkeypatch.setenv("TSC_FILESIZE_LIMIT_MB", "0")
    publish(server, more, mode="Append")
    item = tsc.DatasourceItem(default_project(server), name="Flights")
    job = server.datasources.publish(item, more, "Append", as_job=True)
    server.jobs.wait_for_job(job, timeout=20)
    assert rows_on_server(server, first.id) == [[1, "one"], [3, "three"], [3, "three"]]


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (['CREATE TABLE "Extract"."Extract" AS (SELECT 1 AS id)'], '"name" is missing'),
        (
            ['CREATE TABLE "Extract"."Extract" AS (SELECT 1 AS id, \'a\' AS name, 2 AS extra)'],
            '"extra" is INT instead of missing',
        ),
        (
            ["CREATE TABLE \"Extract\".\"Extract\" AS (SELECT '1' AS id, 'a' AS name)"],
            '"id" is TEXT instead of INT',
        ),
        (
            ['CREATE TABLE "Extract"."other" AS (SELECT 1 AS id, \'a\' AS name)'],
            '"Extract"."other" cannot be appended',
        ),
        (
            [
                'CREATE TABLE "Extract".a (id INT NOT NULL, ASSUMED PRIMARY KEY (id))',
                'CREATE TABLE "Extract".f (a INT)',
                'ALTER TABLE "Extract".f ADD ASSUMED FOREIGN KEY (a) REFERENCES "Extract".a (id)',
            ],
            "The file has 2 tables",
        ),
    ],
)
def test_rows_that_do_not_fit(
    server: tsc.Server, tmp_path: Path, one_row: Path, statements: list[str], reason: str
):
    # Prevents: rows are bent to fit, or half of them stay.
    first = publish(server, one_row)
    unfit = execute(tmp_path / "unfit.hyper", *statements)
    with pytest.raises(tsc.ServerResponseError, match=rf"400011.*\n.*{reason}"):
        publish(server, unfit, mode="Append")
    assert rows_on_server(server, first.id) == [[1, "one"]]
    assert list((tmp_path / "sandbox" / "incoming").iterdir()) == []


def test_null_where_none_may_be(server: tsc.Server, tmp_path: Path):
    # Prevents: an append breaks a promise of the table, or ends in an error of the sandbox.
    strict = execute(
        tmp_path / "strict.hyper", 'CREATE TABLE "Extract"."Extract" (id INTEGER NOT NULL)'
    )
    publish(server, strict)
    null = write_hyper(tmp_path / "null.hyper", "SELECT CAST(NULL AS INTEGER) AS id")
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, null, mode="Append")

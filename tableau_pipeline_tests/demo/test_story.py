import shutil
from pathlib import Path

import dagster as dg
import pytest
from tableauhyperapi import Connection

from tableau_pipeline.command_line.main import run
from tableau_pipeline.components.asset_names import asset_keys
from tableau_pipeline.components.journal import journal_place
from tableau_pipeline.demo.story import datasources
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.types import ROW_HASH
from tableau_pipeline.ingest.publication import KEY_PREFIX
from tableau_pipeline_tests.command_line.conftest import Result, check_transcripts
from tableau_pipeline_tests.components.support.location import forget
from tableau_pipeline_tests.conftest import ROOT, Story
from tableau_pipeline_tests.refresh.support.pipeline import session

TABLES = ("flights", "airlines", "airports", "planes")


def test_each_chapter_decides_and_ends_equal(story: Story):
    """Prevents: a chapter of the demo publishes wrong rows, or nothing, or everything again."""
    flights = [line for line in story.lines if line.datasource == "NYC Flights"]
    assert all(line.differences == [] for line in story.lines)
    first, december, late, nothing, back, again = (line.ended.bytes_sent for line in flights)
    assert first > 5 * december > 10 * late > nothing == 0
    assert back <= 1.1 * again
    assert again <= 1.1 * late


def test_the_example_is_clean(story: Story):
    """Prevents: a newcomer's first look at Dagster shows a warning."""
    key = dg.AssetKey("nyc_flights")
    summaries = story.instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(key, name) for name in ("guard", "keys", "schema")]
    )
    assert len(summaries) == 3
    # Another test may have planned a check in a run that failed before the check.
    assert {each.status.value for each in summaries.values()} <= {"SUCCEEDED", "PLANNED"}


def test_file_holds_the_tables_and_the_keys_between_them(story: Story, tmp_path: Path):
    """Prevents: Tableau shows the hash column, or a data model loses its relationships."""
    with session(story.sandbox) as site:
        (remote,) = site.tsc.datasources.filter(name="NYC Flights")
    file = shutil.copy(story.sandbox.hyper_file(str(remote.id)), tmp_path)
    with Connection(hyper_process().endpoint, file) as connection:
        names = {
            str(name.name.unescaped): [
                column.name.unescaped
                for column in connection.catalog.get_table_definition(name).columns
            ]
            for name in connection.catalog.get_table_names("Extract")
        }
        keys = connection.execute_list_query(
            "SELECT contype, COUNT(*) FROM pg_catalog.pg_constraint GROUP BY contype ORDER BY 1"
        )
    assert names.keys() == set(TABLES)
    assert ROW_HASH not in {column for columns in names.values() for column in columns}
    assert keys == [["f", 3], ["p", 3]]


def test_commands(story: Story, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Prevents: after the demo, a command shows something that the page does not show."""
    # Refresh again, because the last refresh of another test may have failed. Like the last
    # refresh of the demo, this refresh finds nothing to do.
    job = story.definitions.resolve_implicit_global_asset_job_def()
    keys = [key for each in datasources() for key in asset_keys(each.key)]
    assert job.execute_in_process(instance=story.instance, asset_selection=keys).success
    # Other tests have published files, which `status` would show.
    for key in journal_place().recorded_keys():
        if key.startswith(KEY_PREFIX):
            forget(story.instance, key)
    monkeypatch.setenv("DAGSTER_HOME", story.instance.root_directory)
    monkeypatch.chdir(ROOT)
    capsys.readouterr()

    def type_command(command: str) -> Result:
        code, (out, err) = run(command.split()), capsys.readouterr()
        # Files that other tests have published appear as not declared here.
        lines = [line for line in out.splitlines(keepends=True) if "not declared here" not in line]
        return Result(code, "".join(lines), err)

    check_transcripts("On the demo", type_command)

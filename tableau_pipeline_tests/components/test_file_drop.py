import os
from pathlib import Path

import dagster as dg
import pytest

from tableau_pipeline.components import FileDrop
from tableau_pipeline.components.loading import load_definitions
from tableau_pipeline.components.publish_file import publish_file
from tableau_pipeline.errors import RefusedError
from tableau_pipeline_tests.components.support.projects import RESOURCES, Project
from tableau_pipeline_tests.docs.page import page


class Drop:
    """A folder, its sensor, and the cursor that the daemon would keep."""

    def __init__(self, folder: Path, **attributes: object) -> None:
        component = FileDrop.from_attributes_dict(attributes={"folder": str(folder), **attributes})
        context = dg.ComponentTree.for_test().load_context
        (self.sensor,) = component.build_defs(context).sensors or ()
        self.cursor: str | None = None
        self.keys: set[str | None] = set()
        self.files: list[str] = []
        self.why_none: str | None = None

    def tick(self) -> list[dict]:
        """The configs of the runs that the sensor requests."""
        with dg.build_sensor_context(cursor=self.cursor) as context:
            result = self.sensor(context)
        if isinstance(result, dg.SkipReason):
            return []
        self.cursor = result.cursor
        self.keys |= {request.run_key for request in result.run_requests}
        self.files = [request.tags["file"] for request in result.run_requests]
        self.why_none = result.skip_reason.skip_message if result.skip_reason else None
        for request in result.run_requests:
            # Dagster's daemon validates a config before it launches the run.
            assert dg.validate_run_config(publish_file, request.run_config)
        return [
            request.run_config["ops"]["publish_files"]["config"] for request in result.run_requests
        ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "drop"
    folder.mkdir()
    return folder


def test_a_file_is_taken_once_it_stands_still(folder: Path):
    """Prevents: the sensor publishes a half-written file, or publishes a file twice."""
    drop = Drop(folder, publish={"project": "Uploads", "bad_rows": "drop"})
    file = folder / "sales.csv"
    file.write_text("a\n1\n", "utf-8")
    assert drop.tick() == []
    file.write_text("a\n1\n2\n", "utf-8")
    assert [drop.tick(), drop.tick()] == [[], []]
    expected = {"name": "sales", "project": "Uploads", "bad_rows": "drop", "path": str(file)}
    assert drop.tick() == [expected]
    assert [drop.tick(), drop.tick(), drop.tick()] == [[], [], []]


def test_a_file_in_the_place_of_another_is_taken_again(folder: Path):
    """Prevents: the sensor ignores a corrected file because it knows the name of the file."""
    drop = Drop(folder)
    file = folder / "sales.csv"
    file.write_text("a\n1\n", "utf-8")
    first = file.stat().st_mtime_ns
    assert [len(drop.tick()) for _ in range(4)] == [0, 0, 1, 0]
    # The corrected file has the same size.
    file.write_text("a\n2\n", "utf-8")
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**9))
    assert [len(drop.tick()) for _ in range(4)] == [0, 0, 1, 0]
    assert len(drop.keys) == 2
    # The first file comes back with its old time.
    file.write_text("a\n1\n", "utf-8")
    os.utime(file, ns=(0, first))
    assert [len(drop.tick()) for _ in range(4)] == [0, 0, 1, 0]
    assert len(drop.keys) == 3
    file.unlink()
    assert drop.tick() == []


def test_what_the_sensor_tells(folder: Path):
    """Prevents: users cannot see which file a run publishes, or why a file waits."""
    drop = Drop(folder)
    drop.tick()
    assert drop.why_none == "No new file"
    (folder / "sales.csv").write_text("a\n1\n", "utf-8")
    drop.tick()
    assert drop.why_none == "Waiting for files that may still change: sales.csv"
    drop.tick()
    drop.tick()
    assert (drop.files, drop.why_none) == (["sales.csv"], None)


def test_what_does_not_count(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Prevents: the sensor requests runs for folders, hidden files or files of other kinds."""
    drop = Drop(folder, pattern="*.csv", publish={"name": "All sales"})
    (folder / "x.csv").mkdir()
    for name in (".x.csv", "_x.csv", "x.txt", "ok.csv"):
        (folder / name).write_text("a\n1\n", "utf-8")
    found = [config for _ in range(4) for config in drop.tick()]
    assert [(config["name"], Path(config["path"]).name) for config in found] == [
        ("All sales", "ok.csv")
    ]
    assert Drop(tmp_path / "none").tick() == []
    assert "Skipped .x.csv, _x.csv: unfinished files have such names" in capfd.readouterr().err


def test_nested_files_are_where_they_are(folder: Path):
    """Prevents: a run looks for a file of a subfolder in the folder above."""
    drop = Drop(folder, pattern="**/*.csv")
    nested = folder / "eu" / "2024" / "sales.csv"
    nested.parent.mkdir(parents=True)
    nested.write_text("a\n1\n", "utf-8")
    (folder / "stock.csv").write_text("a\n1\n", "utf-8")
    found = [config for _ in range(4) for config in drop.tick()]
    assert {config["name"]: config["path"] for config in found} == {
        "sales": str(nested),
        "stock": str(folder / "stock.csv"),
    }


@pytest.mark.parametrize(
    ("one", "other", "settings"),
    [
        ("sales.csv", "sales.json", {}),
        ("eu/sales.csv", "us/Sales.csv", {}),
        ("eu/sales.csv", "us/sales.csv", {"name": "All sales", "mode": "append"}),
    ],
)
def test_files_that_would_replace_each_other(
    folder: Path, one: str, other: str, settings: dict[str, str]
):
    """Prevents: two files replace each other's rows in one data source, again and again."""
    drop = Drop(folder, pattern="**/*.*", publish=settings)
    for name in (one, other, "stock.csv"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("a\n1\n", "utf-8")
    # The sensor still publishes the other files.
    found = [Path(config["path"]).name for _ in range(3) for config in drop.tick()]
    assert found == ["stock.csv"]
    with pytest.raises(RefusedError, match=rf"{one} and {other} .* Rename one"):
        drop.tick()
    (folder / "late.csv").write_text("a\n1\n", "utf-8")
    drop.tick()
    assert drop.why_none
    waits = "Waiting for files that may still change: late.csv"
    assert f"{waits}. {one} and {other} have the same name" in drop.why_none
    found = [Path(config["path"]).name for _ in range(2) for config in drop.tick()]
    assert found == ["late.csv"]
    (folder / other).unlink()
    assert [len(drop.tick()) for _ in range(4)] == [0, 0, 1, 0]


@pytest.mark.parametrize("settings", [{"name": "Sales"}, {"name": "Sales", "mode": "append"}])
def test_files_of_one_data_source(folder: Path, settings: dict[str, str]):
    """Prevents: the sensor refuses two files that belong to one data source."""
    drop = Drop(folder, publish=settings)
    for name in ("may.csv", "june.csv"):
        (folder / name).write_text("a\n1\n", "utf-8")
    assert [len(drop.tick()) for _ in range(4)] == [0, 0, 2, 0]


def test_a_mistake_in_what_is_published(folder: Path):
    """Prevents: a wrong option fails only when the first file arrives, at night."""
    with pytest.raises(ValueError, match=r"bad_rows: .*'ignore' is not one of refuse, drop"):
        Drop(folder, publish={"bad_rows": "ignore"})
    with pytest.raises(ValueError, match=r"locale is not an option .*, decimal, thousands"):
        Drop(folder, publish={"reader": {"locale": "de-DE"}})


@pytest.mark.parametrize("beside", [True, False])
def test_with_and_without_the_job(project: Project, beside: bool):
    """Prevents: a location fails to load because `publish_file` is defined twice, or missing."""
    if beside:
        project.add_pipeline()
    else:
        project.write("resources.py", RESOURCES)
    (declaration,) = page("how-to/files.md").whole.blocks("yaml")
    project.write("drop/defs.yaml", declaration)
    definitions = load_definitions(project.package)
    dg.Definitions.validate_loadable(definitions)
    assert definitions.resolve_job_def("file_drop_publish_file")

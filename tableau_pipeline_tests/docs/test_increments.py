import json
from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import pytest

from tableau_pipeline.core.snapshot import MANIFEST
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.plan import Options
from tableau_pipeline.refresh.report import Report
from tableau_pipeline.sandbox.testing import Sandbox, running_sandbox
from tableau_pipeline_tests.docs.messages import is_said
from tableau_pipeline_tests.docs.page import PAGE, declared
from tableau_pipeline_tests.docs.scenes import SCENES, Step
from tableau_pipeline_tests.refresh.models import snapshot
from tableau_pipeline_tests.refresh.pipeline import Pipeline, session


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox]:
    with running_sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def eyes(sandbox: Sandbox) -> Generator[TableauSite]:
    with session(sandbox) as site:
        yield site


def write(pipeline: Pipeline, step: Step) -> None:
    """Give the models their new content."""
    for model, parts in step.models.items():
        newest = {each.partition: each for each in pipeline.models.get(model, ())}
        for part in parts:
            folder = pipeline.folder / "snapshots"
            written = snapshot(folder, part.rows, asset_key=model, partition=part.partition)
            written = written.model_copy(update={"span": part.span})
            (written.folder / MANIFEST).write_text(written.manifest(), encoding="utf-8")
            newest[part.partition] = written
        pipeline.models[model] = tuple(newest.values())


def refresh(pipeline: Pipeline, step: Step) -> Report:
    write(pipeline, step)
    noon = datetime.combine(step.today, time(12), UTC)
    report = replace(pipeline.refresh(), now=lambda: noon).run(Options())
    assert report.state is not None
    pipeline.journal.keep(report.state)
    return report


@pytest.mark.parametrize("heading", SCENES)
def test_scene(heading: str, sandbox: Sandbox, eyes: TableauSite, tmp_path: Path):
    # Prevents: a page that promises another increment than the one that is sent, or wrong rows.
    pipeline = Pipeline(sandbox, eyes, tmp_path, declared(heading))
    told = {int(row["refresh"]): row for row in PAGE.sections[heading].rows()}
    batches = PAGE.sections[heading].batches()
    numbers = []
    for number, step in enumerate(SCENES[heading](), start=1):
        report = refresh(pipeline, step)
        numbers.append(number)
        assert pipeline.wrong() == []
        assert report.plan is not None
        assert report.state is not None
        decided: dict[str, Any] = {"decision": report.plan.decision}
        if number == 1:
            assert decided == {"decision": "publish (create)"}
            continue
        decided["reason"] = report.plan.reason
        if "rows then" in told[number]:
            (table,) = report.state.tables.values()
            decided["rows then"] = f"{table.content.rows:,}"
        assert decided == {name: told[number][name] for name in decided}
        if number in batches:
            sent = pipeline.journal.all_intents()[-1].batch
            assert json.loads(batches.pop(number)) == json.loads(str(sent))
    assert numbers == [1, *told]
    assert not batches


def test_every_declaration_of_the_page_is_tested():
    # Prevents: an example that was added to the page, and that nobody ever ran.
    declaring = {name for name, section in PAGE.sections.items() if section.blocks("yaml")}
    assert declaring == {*SCENES, "Hand-written batches"}


@pytest.mark.parametrize("heading", ["What may go whole", "What is refused"])
def test_messages_are_those_of_the_code(heading: str):
    # Prevents: a page that nobody finds by the message that they see.
    told = [row["what you see"] for row in PAGE.sections[heading].rows()]
    assert len(told) > 10
    assert [each for each in told if not is_said(each)] == []

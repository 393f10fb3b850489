import json
from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import pytest

from tableau_pipeline.core.declaration import Republish
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.plan import Options
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline.refresh.report import Report
from tableau_pipeline_tests.docs.page import declared, page
from tableau_pipeline_tests.docs.scenes import SCENES, Step
from tableau_pipeline_tests.refresh.support.models import snapshot
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_sandbox.testing import Sandbox, running_sandbox

SECTIONS = page("how-to/ship-changes.md").sections


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox]:
    with running_sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def eyes(sandbox: Sandbox) -> Generator[TableauSite]:
    with session(sandbox) as site:
        yield site


class Batches(Proxy):
    """A session that keeps the batches that it sends."""

    def __init__(self, site: TableauSite, sent: list[str]) -> None:
        super().__init__(site)
        self._sent = sent

    def update(self, luid: str, *, batch: str, **more: Any) -> str | None:
        self._sent.append(batch)
        return self.behind.update(luid, batch=batch, **more)


def ship(pipeline: Pipeline, step: Step, sent: list[str]) -> Report:
    """Give the models their new content, and refresh."""
    for model, parts in step.models.items():
        for part in parts:
            snapshot(
                pipeline.folder / "snapshots",
                part.rows,
                asset_key=model,
                partition=part.partition,
                span=part.span,
            )
    noon = datetime.combine(step.today, time(12), UTC)
    return refresh(
        pipeline.refresh(around_server=lambda site: Batches(site, sent), now=noon), Options()
    )


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("heading", SCENES)
def test_scene(heading: str, sandbox: Sandbox, eyes: TableauSite, tmp_path: Path):
    # Prevents: a page that shows another delta than the one that is sent, or wrong rows.
    declaration = replace(declared(SECTIONS[heading]), republish=Republish(growth=10))
    pipeline = Pipeline(sandbox, eyes, tmp_path, declaration)
    documented = {int(row["refresh"]): row for row in SECTIONS[heading].rows()}
    batches = SECTIONS[heading].batches()
    numbers: list[int] = []
    for number, step in enumerate(SCENES[heading](), start=1):
        sent: list[str] = []
        report = ship(pipeline, step, sent)
        numbers.append(number)
        assert pipeline.wrong() == []
        assert report.plan is not None
        assert report.checkpoint is not None
        decided: dict[str, Any] = {"decision": report.plan.decision}
        if number == 1:
            assert decided == {"decision": "publish (create)"}
            continue
        decided["reason"] = report.plan.reason
        if "rows then" in documented[number]:
            (table,) = report.checkpoint.tables.values()
            decided["rows then"] = f"{table.content.rows:,}"
        assert decided == {name: documented[number][name] for name in decided}
        if number in batches:
            assert [json.loads(batches.pop(number))] == [json.loads(batch) for batch in sent]
    assert numbers == [1, *documented]
    assert not batches


def test_every_declaration_of_the_page_is_tested():
    # Prevents: an example that was added to the page, and that nobody ever ran.
    declaring = {name for name, section in SECTIONS.items() if section.blocks("yaml")}
    assert declaring == {*SCENES}

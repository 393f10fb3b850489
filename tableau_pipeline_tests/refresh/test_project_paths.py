from uuid import uuid4

import pytest

from tableau_pipeline.core.declaration import ProjectLuid
from tableau_pipeline.errors import RefusedError
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session


@pytest.fixture
def path() -> str:
    """A path of projects that do not exist."""
    return f"Aviation {uuid4().hex[:6]}/Curated/2013"


def names(pipeline: Pipeline) -> set[str]:
    with session(pipeline.sandbox) as site:
        return {project.name for project in site.tsc.projects.all()}


def test_project_by_its_luid(pipeline: Pipeline, path: str):
    """Prevents: a project that somebody renames is created a second time."""
    with session(pipeline.sandbox) as site:
        luid = site.project((path,), create=True)
    pipeline.declare(project=ProjectLuid(luid))
    pipeline.run()
    (item,) = pipeline.found()
    assert item.project_id == luid
    pipeline.declare(project=ProjectLuid("nowhere"), name=f"{pipeline.name} elsewhere")
    with pytest.raises(RefusedError, match="nowhere"):
        pipeline.run()


@pytest.mark.parametrize("depth", [0, 1])
def test_missing_project_is_named(pipeline: Pipeline, path: str, depth: int):
    """Prevents: a misspelt project is created, or the data source lands in Default."""
    top = path.split("/")[0]
    if depth:
        with session(pipeline.sandbox) as site:
            site.project(top, create=True)
    pipeline.declare(project=path)
    known = names(pipeline)
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    missing, where = [(top, "on the site"), ("Curated", f'in "{top}"')][depth]
    for part in (
        f'"{path}"',
        f'no project "{missing}" {where}',
        "create_project: true",
        "may not see",
    ):
        assert part in str(caught.value)
    assert names(pipeline) == known
    assert (pipeline.found(), pipeline.extract_files()) == ([], [])


def test_dry_run_creates_no_project(pipeline: Pipeline, path: str):
    """Prevents: a dry run leaves projects behind, or fails where the real run would not."""
    pipeline.declare(project=path, create_project=True)
    known = names(pipeline)
    assert pipeline.decide().startswith("publish (create)")
    assert names(pipeline) == known

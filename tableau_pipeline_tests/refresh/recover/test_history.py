"""Which versions of models the server may hold, as the records of a data source tell."""

import pytest

from tableau_pipeline.core.checkpoint import Checkpoint, Outcome, PublishMode
from tableau_pipeline.core.journal import ClaimRelease, Intent, read_history
from tableau_pipeline_tests.refresh.support.states import NOON, checkpoint, table


def left(refresh: int, **versions: int) -> Checkpoint:
    """What a refresh left, with these versions of models."""
    tables = {model: table(model=model, version=number) for model, number in versions.items()}
    return checkpoint(refresh=refresh, tables=tables)


def intent(refresh: int, **more: object) -> Intent:
    usual = {"refresh": refresh, "step": 1, "request_id": f"{refresh}", "recorded_at": NOON}
    usual |= {"run_id": f"run {refresh}", "mode": PublishMode.REPLACE, "name": "Sales"}
    usual |= {"project_id": "project-1", "luid": "luid-1", "target": left(refresh, orders=refresh)}
    return Intent.model_validate(usual | more)


@pytest.mark.parametrize("outcome", [None, *Outcome], ids=str)
def test_versions_that_may_be_published(outcome: Outcome | None):
    """Prevents: a version is collected that the server may hold, and no update builds on it."""
    base = ClaimRelease(refresh=1, claim="1", checkpoint=left(1, orders=1, items=1))
    history = read_history([base, intent(2, outcome=outcome)])
    landed = outcome in (None, Outcome.DONE, Outcome.LOST)
    versions = {("orders", 1), ("items", 1)} | ({("orders", 2)} if landed else set())
    assert history.versions == versions
    assert history.published_version("orders") == (2 if landed else 1)
    assert history.published_version("items") == 1
    assert history.published_version("notes") is None


def test_newest_of_several_versions():
    """Prevents: files are added to an older version than the one that was sent last."""
    sendings = [
        intent(3, target=left(3, orders=7)),
        intent(2, target=left(2, orders=9), outcome=Outcome.LOST),
        intent(4, target=None),
    ]
    assert read_history(sendings).published_version("orders") == 7

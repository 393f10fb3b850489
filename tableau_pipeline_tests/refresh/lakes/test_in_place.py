"""Tables of lakes that hyperd reads from S3 itself."""

from collections.abc import Generator
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.objects import stores as in_place
from tableau_pipeline.objects.stores import opened
from tableau_pipeline_tests.deployment.s3 import BUCKET, S3Server
from tableau_pipeline_tests.deployment.stores.network import Network
from tableau_pipeline_tests.refresh.lakes.support import (
    follow,
    in_order,
    published,
    values_of_all_types,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

pytestmark = pytest.mark.timeout(300)
PLAIN = {"allow_http": "true"}
URL = f"s3://{BUCKET}/orders"


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[S3Server]:
    made = S3Server(tmp_path / "s3")
    for name, value in made.settings.items():
        monkeypatch.setenv(name, value)
    made.start()
    # Stores that were opened before are at another port.
    opened.cache_clear()
    yield made
    opened.cache_clear()
    made.stop()


@pytest.fixture
def followed(s3: S3Server, pipeline: Pipeline) -> Pipeline:
    """A data source of a table in S3, of which no copies are kept."""
    write_deltalake(URL, values_of_all_types(), storage_options=PLAIN)
    follow(pipeline, "delta", URL)
    pipeline.copies.limit = 0
    return pipeline


def only_hyperd(monkeypatch: pytest.MonkeyPatch, argument: str, value: str) -> None:
    """Give hyperd another value than the other clients of the store."""
    monkeypatch.setitem(in_place._ARGUMENTS, argument, ("ONLY_HYPERD",))
    monkeypatch.setenv("ONLY_HYPERD", value)


def failure(pipeline: Pipeline) -> str:
    with pytest.raises(RefreshError) as caught:
        pipeline.run()
    # A refusal would not be tried again.
    assert type(caught.value) is RefreshError
    assert caught.value.__suppress_context__
    return str(caught.value)


@pytest.mark.parametrize(
    "answered",
    # hyperd goes on trying for 50 seconds, but not if nobody knows the host.
    [
        pytest.param(None, id="unknown", marks=pytest.mark.slow),
        pytest.param(1, id="lost", marks=pytest.mark.long),
    ],
)
def test_a_store_that_is_away(
    answered: int | None, followed: Pipeline, s3: S3Server, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a lost connection that blames the values of a model, or does not name the store."""
    with Network(s3.port).running() as between:
        there = f"http://127.0.0.1:{between.port}"
        between.down_after(answered or 0)
        only_hyperd(monkeypatch, "endpoint", there if answered else "http://nowhere.invalid")
        assert failure(followed) == (
            f"Reading s3://{BUCKET} in place failed: the connection broke off, or there was no "
            "answer in time. Check the network and the AWS_ variables, then run again."
        )
        between.up()
        only_hyperd(monkeypatch, "endpoint", there)
        before = len(between.requests)
        followed.run()
        assert len(between.requests) > before
    table = DeltaTable(URL, storage_options=PLAIN)
    assert published(followed) == in_order(table.to_pyarrow_table())


@pytest.mark.slow
def test_a_store_that_refuses(followed: Pipeline, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a wrong key that nobody looks for, or that the message shows."""
    only_hyperd(monkeypatch, "secret_access_key", "a wrong one")
    message = failure(followed)
    assert f"Reading s3://{BUCKET} in place failed: SignatureDoesNotMatch: " in message
    assert "a wrong one" not in message
    assert "\n" not in message

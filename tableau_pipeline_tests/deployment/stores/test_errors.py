"""What a user reads when an object store refuses, fails or does not answer."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline.objects import arrow_files
from tableau_pipeline.objects.local import LocalCopies
from tableau_pipeline.objects.stores import StoreError, opened
from tableau_pipeline.snapshots import store as store_module
from tableau_pipeline.snapshots.store import ObjectStorage, SnapshotStore
from tableau_pipeline.snapshots.write import write_snapshot
from tableau_pipeline_tests.deployment.s3 import S3Server
from tableau_pipeline_tests.deployment.stores.object_server import ObjectServer
from tableau_pipeline_tests.ports import free_port

pytestmark = pytest.mark.timeout(300)
SECRET = "c2VjcmV0IG9mIHRoZSB0ZXN0"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has opened no store yet, and soon gives up."""
    monkeypatch.setattr(arrow_files, "_RETRY", {"max_retries": 1})
    monkeypatch.setattr(store_module, "_PAUSES", ())
    opened.cache_clear()
    yield
    opened.cache_clear()


@pytest.fixture
def storage(tmp_path: Path) -> Callable[[str], ObjectStorage]:
    """Makes storages, by URL."""
    return lambda url: ObjectStorage(url, LocalCopies(tmp_path / "copies", 10**9))


def messages(storage: ObjectStorage) -> dict[str, str]:
    """What each operation says; each says something, and in one line."""
    calls: dict[str, Callable[[], object]] = {
        "Writing": lambda: storage.put("model/a", b"a"),
        "Reading": lambda: storage.read("model/a"),
        "Listing": lambda: [*storage.list("model/")],
    }
    found = {}
    for doing, call in calls.items():
        with pytest.raises(StoreError) as caught:
            call()
        found[doing] = str(caught.value)
        assert found[doing].startswith(f"{doing} {storage.url}/model")
        assert "\n" not in found[doing]
        # What the library says has the whole request.
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    return found


ON_S3 = pytest.mark.parametrize(
    "server", [pytest.param(S3Server, id="S3", marks=pytest.mark.slow)], indirect=True
)
CAUSES = {
    "bucket": (
        {"url": "s3://elsewhere/x"},
        "there is no such bucket .*NoSuchBucket.*Correct the URL, .* or create the bucket.",
    ),
    "user": (
        {"AWS_ACCESS_KEY_ID": "nobody"},
        "does not accept the credentials .*Correct AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
    ),
    "secret": (
        {"AWS_SECRET_ACCESS_KEY": SECRET},
        "does not accept the credentials .*SignatureDoesNotMatch.*Correct AWS_ACCESS_KEY_ID",
    ),
    "region": (
        {"AWS_REGION": "eu-west-1"},
        'another region .*expecting "us-east-1".* Set AWS_REGION to the region of the bucket.',
    ),
    "host": (
        {"AWS_ENDPOINT_URL": "http://nowhere.invalid"},
        r"no connection \(http://nowhere.invalid: .*\). Check AWS_ENDPOINT_URL and the network",
    ),
    "TLS": (
        {"AWS_ENDPOINT_URL": "https"},
        r"no connection \(https://127.*\). Check AWS_ENDPOINT_URL and the network",
    ),
}


@ON_S3
@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_and_its_remedy(
    cause: str,
    server: ObjectServer,
    storage: Callable[[str], ObjectStorage],
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: forty lines of a library where one would do, or a model that seems to be empty."""
    changes, expected = CAUSES[cause]
    for name, value in {**server.settings, **changes}.items():
        value = server.settings[name].replace("http", "https") if value == "https" else value
        monkeypatch.setenv(name, value)
    for message in messages(storage(changes.get("url", "s3://lake/x"))).values():
        assert re.search(expected, message), message
        assert SECRET not in message


def test_a_signature_in_a_url_is_not_shown(
    storage: Callable[[str], ObjectStorage], monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a shared access signature in the log of every run that cannot reach the store."""
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"sv=2024-01-01&sig={SECRET}")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    url = "abfss://lake@account.dfs.core.windows.net/x"
    for message in messages(storage(url)).values():
        assert "no connection (Connection refused)" in message
        assert message.endswith("Check AZURE_STORAGE_ENDPOINT and the network, then run again.")
        assert SECRET not in message


@ON_S3
def test_a_task_that_does_not_reach_the_store(
    server: ObjectServer,
    spark: SparkSession,
    storage: Callable[[str], ObjectStorage],
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: a hundred lines of Spark for executors that lack a variable."""
    for name, value in server.settings.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    monkeypatch.setitem(spark.sparkContext.environment, "AWS_SECRET_ACCESS_KEY", SECRET)
    store = SnapshotStore(storage("s3://lake/x"))
    with pytest.raises(StoreError) as caught:
        write_snapshot(spark.range(3), store, asset_key="model", run_id="test")
    assert re.fullmatch(
        r"In a task of Spark: Writing s3://lake/x/model/@data/\S+ failed: the store does not "
        r"accept the credentials \(.*SignatureDoesNotMatch.*\). Correct AWS_ACCESS_KEY_ID.*\.",
        str(caught.value),
    )
    assert SECRET not in str(caught.value)
    assert store.newest("model") is None

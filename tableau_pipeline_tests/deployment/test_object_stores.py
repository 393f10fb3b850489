"""Object stores that are killed, refuse requests, or come and go: data and error messages."""

import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import dagster as dg
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.components.audit import audit_job
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.objects import arrow_files
from tableau_pipeline.objects import storage as store_module
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.storage import ObjectStorage
from tableau_pipeline.objects.stores import StoreError, store_at
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline.resources.snapshots import local_copies
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import write_snapshot
from tableau_pipeline_tests.components.support.location import wrong
from tableau_pipeline_tests.dagster_servers import free_port, until
from tableau_pipeline_tests.deployment.hosts.process import declaration
from tableau_pipeline_tests.deployment.object_stores import Fault, Network, ObjectServer, S3Server
from tableau_pipeline_tests.snapshots.support import commit, rows
from tableau_sandbox.testing import Sandbox

pytestmark = pytest.mark.timeout(600)
WRITERS = 20


def manifests_are(fault: Fault, network: Network, *, times: int = 1000) -> None:
    """Apply a fault to the next requests that commit a version."""
    left = [fault] * times

    def chosen(method: str, path: str) -> Fault | None:
        return left.pop() if left and method == "PUT" and "versions" in path else None

    network.fault = chosen


def test_a_store_that_is_killed_and_starts_again(
    server: ObjectServer, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: a confirmed version disappears, or another version replaces it."""
    if not server.outlives_a_kill:
        pytest.skip("this server confirms objects before it writes them")
    store = client()
    confirmed: dict[str, int] = {}
    failed: set[str] = set()
    end = threading.Event()

    def write(writer: int) -> None:
        for number in range(1000):
            key = f"{writer} {number}"
            try:
                confirmed[key] = commit(store, key).number
            except StoreError:
                failed.add(key)
            if end.is_set():
                return

    with ThreadPoolExecutor(WRITERS) as executor:
        try:
            writing = [executor.submit(write, writer) for writer in range(WRITERS)]
            until(lambda: len(confirmed) > 10, seconds=60, what="nothing is written")
            server.kill()
            until(lambda: failed, seconds=60, what="no writer noticed")
            server.start()
            before = len(confirmed)
            until(lambda: len(confirmed) > before + 10, seconds=60, what="nothing is written")
        finally:
            end.set()
    for each in writing:
        each.result()
    newest = store.newest("model")
    assert newest
    versions = {str(part.partition): part.version for part in newest.parts}
    assert versions.items() >= confirmed.items()
    assert versions.keys() - confirmed.keys() <= failed
    assert len(set(versions.values())) == len(versions)
    assert newest.missing() == []


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_to_a_commit(
    fault: Fault, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: a run fails after its commit, or commits twice."""
    store = client()
    manifests_are(fault, network, times=1)
    first = commit(store, "a")
    network.settle()
    assert (first.number, store.numbers("model")) == (1, [1])
    assert store.newest("model") == first
    assert commit(store, "b").number == 2


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LATE])
def test_another_writer_after_a_lost_commit(
    fault: Fault, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: a writer takes the version of another writer for its own version."""
    store = client()
    others = []

    def chosen(method: str, path: str) -> Fault | None:
        if method != "PUT" or "versions" not in path:
            return None
        network.up()
        others.append(commit(store, "other"))
        return fault

    network.fault = chosen
    mine = commit(store, "mine")
    network.settle()
    assert [each.number for each in others] == [1]
    assert mine.number == 2
    assert rows(store.newest("model")) == {"mine": 1, "other": 1}


SECRET = "c2VjcmV0IG9mIHRoZSB0ZXN0"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Act as a process that has opened no store yet, and that soon gives up."""
    monkeypatch.setattr(arrow_files, "_RETRY", {"max_retries": 1})
    monkeypatch.setattr(store_module, "_PAUSES", ())
    store_at.cache_clear()
    yield
    store_at.cache_clear()


@pytest.fixture
def storage(tmp_path: Path) -> Callable[[str], ObjectStorage]:
    """A function that makes the storage for a URL."""
    return lambda url: ObjectStorage(url, LocalCopies(tmp_path / "copies", 10**9))


def messages(storage: ObjectStorage) -> dict[str, str]:
    """The error message of each operation, which must be one line."""
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
        # The error of the library must not appear, because it would show the whole request.
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
        r"does not encrypt \(https://127.*\). Correct AWS_ENDPOINT_URL: it may have to begin with http://",
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
    """Prevents: users see forty lines of a library's error, or a model that seems to be empty."""
    changes, expected = CAUSES[cause]
    for name, value in {**server.settings, **changes}.items():
        value = server.settings[name].replace("http", "https") if value == "https" else value
        monkeypatch.setenv(name, value)
    for message in messages(storage(changes.get("url", "s3://lake/x"))).values():
        assert re.search(expected, message), message
        assert SECRET not in message


@pytest.mark.slow
def test_a_signature_in_a_url_is_not_shown(
    storage: Callable[[str], ObjectStorage], monkeypatch: pytest.MonkeyPatch
):
    """Prevents: the log of a run shows a shared access signature if the store is unreachable."""
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
    """Prevents: users see a hundred lines of Spark's error because executors lack a variable."""
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


# The one-line message for users: what failed, why, and what to do.
UNREACHABLE = (
    r"(Reading|Writing|Listing|Deleting) (s3|gs|abfss)://\S+ failed: the connection broke off, or "
    r"there was no answer in time \([^\n]+\)\. Check the network, then run again\.\s*$"
)


@pytest.fixture
def tasks(
    spark: SparkSession, server: ObjectServer, network: Network, monkeypatch: pytest.MonkeyPatch
) -> SparkSession:
    """Spark, whose tasks reach the store through the same network as this process."""
    for name, value in server.settings_at(network.port).items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return spark


def check(message: str) -> None:
    assert re.search(UNREACHABLE, message), message


def write(frame: DataFrame, store: SnapshotStore) -> Snapshot:
    return write_snapshot(frame, store, asset_key="model", run_id="test")


def ids(spark: SparkSession, snapshot: Snapshot | None) -> list[int]:
    assert snapshot
    return sorted(row.id for row in read_frame(spark, snapshot).collect())


@pytest.mark.parametrize(
    ("end", "files"), [(10, 2), (600_000, 1)], ids=["two files", "a file in parts"]
)
def test_each_request_of_a_write(
    tasks: SparkSession, network: Network, client: Callable[[], SnapshotStore], end: int, files: int
):
    """Prevents: a failed write loses the previous version, or leaves half a version."""
    store = client()
    first = write(tasks.range(3, numPartitions=1), store)
    rows = tasks.range(3, end, numPartitions=files)
    for passed in count():
        network.down_after(passed)
        try:
            write(rows, store)
        except StoreError as error:
            check(str(error))
        else:
            break
        finally:
            network.up()
        assert store.newest("model") == first
        assert first.missing() == []
    assert passed > 5
    assert ids(tasks, client().newest("model")) == [*range(3, end)]


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.LATE])
def test_an_outcome_that_stays_unknown(
    fault: Fault, tasks: SparkSession, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: a write removes files although their version exists, or will exist."""
    store = client()
    network.fault = lambda method, path: fault if "versions" in path and method == "PUT" else None
    with pytest.raises(StoreError, match=r"Writing .*/@versions/000000001\.json failed"):
        write(tasks.range(3, numPartitions=1), store)
    network.up()
    network.settle()
    assert ids(tasks, store.newest("model")) == [0, 1, 2]
    assert write(tasks.range(5, numPartitions=1), store).number == 2
    assert ids(tasks, store.newest("model")) == [*range(5)]


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.CUT])
def test_each_request_of_a_read(
    fault: Fault, tasks: SparkSession, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: a read lacks rows, and no error says so."""
    write(tasks.range(10_000, numPartitions=2), client())
    for passed in count():
        network.down_after(passed, fault)
        try:
            # `ids` reads by Spark; `paths` copies the files as for hyperd.
            found = client().newest("model")
            assert ids(tasks, found) == [*range(10_000)]
            assert found
            assert sum(Path(path).stat().st_size for path in found.paths) == found.size
        # The code of a user sees Spark's own error, whose last line is our message.
        except (StoreError, PySparkException, Py4JJavaError) as error:
            check(str(error).strip())
        else:
            break
        finally:
            network.up()
    assert passed > 5


def test_what_was_read_is_released(
    tasks: SparkSession,
    tableau_sandbox: Sandbox,
    location: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: a disk fills with files that refreshes and audits have read."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    local_copies.cache_clear()
    monkeypatch.setenv("PIPELINE_DATA_DIR", location)
    monkeypatch.setenv("PIPELINE_CACHE_GB", "0.000001")
    resources, declared = resources_from_env(), declaration("orders")
    snapshots = resources["snapshots"]
    stored = write_snapshot(tasks.range(9), snapshots.store, asset_key="orders", run_id="test")
    definitions = dg.Definitions(
        [dg.AssetSpec("orders"), refresh_assets(declared, None)],
        resources=resources,
        executor=dg.in_process_executor,
    )
    refreshing = definitions.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        assert refreshing.execute_in_process(instance=instance).success
        assert [*snapshots.copies.folder.iterdir()] == []
        audit = audit_job([declared])
        assert audit.execute_in_process(instance=instance, resources=resources).success
        assert [*snapshots.copies.folder.iterdir()] == []
    assert wrong(tableau_sandbox, declared, {"orders": stored}) == []
    local_copies.cache_clear()

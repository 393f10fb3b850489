"""Refresh lineitem on several hosts (as of `make cluster`) and on one; needs PostgreSQL."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

import psutil
import pyarrow.parquet as pq

from benchmarks.change.pipeline import publish
from benchmarks.change.spark_sources import change_everywhere, link
from benchmarks.fresh_process import in_fresh_process
from benchmarks.lineitem import generate
from benchmarks.peers.process_tree import processor_seconds
from benchmarks.published import check_published
from benchmarks.results import figure
from tableau_pipeline.demo.sandbox_process import sandbox_process
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.cluster.deployment import deployment
from tableau_pipeline_tests.deployment.object_stores import BUCKET

_MEMORY = "2g"
_HEADINGS = (
    *("where", "what changed", "decision", "seconds", "processor, s"),
    *("MB read", "MB written", "requests"),
)


# A line of the S3 server's log: time, server, status, duration, client, method, path and query.
_REQUEST = re.compile(
    rf"\| 200 \| +\S+ \| \S+ \| (GET|PUT|POST) \| /{BUCKET}/(\S+) \| - \| (.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class _Transfer:
    """The bytes of whole objects that were read and written, and the number of all requests."""

    read: int
    written: int
    requests: int


class _Transfers:
    """Reads the log of an S3 server, and adds up the bytes and requests since the last call."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._objects = folder / "buckets" / BUCKET
        self._position = 0

    def since_last(self) -> _Transfer:
        """Return the bytes and requests since the last call."""
        with self._log.open() as log:
            log.seek(self._position)
            text = log.read()
            self._position = log.tell()
        read = written = 0
        for method, key, query in _REQUEST.findall(text):
            # A large object arrives in parts. Count its size at the request that completes the
            # upload: this request has no part number, and only then does the object exist.
            is_part = "partNumber=" in query or "uploads=" in query
            size = 0 if is_part else self._size(key)
            if method == "GET":
                read += size
            else:
                written += size
        return _Transfer(read, written, requests=text.count("| vgw |"))

    def _size(self, key: str) -> int:
        path = self._objects / unquote(key)
        return path.stat().st_size if path.is_file() else 0


@dataclass(frozen=True)
class _Refresh:
    """What a refresh took, from the model to the published data source.

    Attributes:
        where: the deployment.
        what: what had changed before the refresh.
        wall: seconds.
        cpu: processor seconds of all processes; the server and the services count too.
        store: what the refresh read from and wrote to the object store; None on one machine.
    """

    where: str
    what: str
    decision: str
    wall: float
    cpu: float
    store: _Transfer | None


def compare_with_several_hosts(scale: float) -> None:
    """Print a table of three refreshes in each of the two deployments.

    These are the first refresh, a refresh after a change of 1 %, and a refresh without a change.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        lineitem = generate(folder / "tpch", scale)
        found = in_fresh_process(_one_machine, lineitem, folder / "one")
        found += in_fresh_process(_several_hosts, lineitem, folder / "several")
    print(f"\nlineitem at scale {scale:g}, hyperd within {_MEMORY}\n")
    print(f"| {' | '.join(_HEADINGS)} |\n|{' --- |' * len(_HEADINGS)}")
    for each in found:
        print(f"| {' | '.join(_cells(each))} |")


def _cells(refresh: _Refresh) -> Iterator[str]:
    yield from (refresh.where, refresh.what, refresh.decision)
    taken = [("seconds", refresh.wall), ("processor, s", refresh.cpu)]
    if store := refresh.store:
        taken += [("MB read", store.read / 1e6), ("MB written", store.written / 1e6)]
        taken.append(("requests", store.requests))
    for name, value in taken:
        # Each refresh is measured once: a range would show the same value three times.
        figure(f"{refresh.where}: {refresh.what}: {name}", [value])
        yield f"{value:.0f}" if name == "requests" else f"{value:.1f}"
    yield from [""] * (len(_HEADINGS) - 3 - len(taken))


def _one_machine(lineitem: Path, folder: Path) -> list[_Refresh]:
    folder.mkdir()
    with sandbox_process(folder / "sandbox", port=0) as tableau:
        environment = {**tableau, "PIPELINE_DATA_DIR": str(folder)}
        return [*_refreshes("one machine", lineitem, folder, environment)]


def _several_hosts(lineitem: Path, folder: Path) -> list[_Refresh]:
    folder.mkdir()
    with deployment(folder / "hosts") as running:
        environment = running.hosts["host-a"].environment
        transfers = _Transfers(folder / "hosts" / "s3")
        return [*_refreshes("`make cluster`", lineitem, folder, environment, transfers)]


def _refreshes(
    where: str,
    lineitem: Path,
    folder: Path,
    environment: Mapping[str, str],
    transfers: _Transfers | None = None,
) -> Iterator[_Refresh]:
    """Publish lineitem; change 1 % of its rows and refresh; then refresh without a change."""
    source = folder / "source"
    link(lineitem, source)
    environment = {**environment, "HYPER_MEMORY_LIMIT": _MEMORY}
    for title, changes in (("first", False), ("1 % of the rows changed", True), ("nothing", False)):
        if changes:
            in_fresh_process(change_everywhere, source)
        services = [each.pid for each in psutil.Process().children()]
        before = sum(map(processor_seconds, services))
        if transfers:
            transfers.since_last()
        cost = in_fresh_process(publish, "whole", folder, environment)
        store = transfers.since_last() if transfers else None
        cpu = cost.processor + sum(map(processor_seconds, services)) - before
        print(f"{where}, {title}: {cost.decision}, {cost.wall:.1f} s", flush=True)
        in_fresh_process(_check, cost.luid, source, environment)
        yield _Refresh(where, title, cost.decision, cost.wall, cpu, store)


def _check(luid: str, source: Path, environment: Mapping[str, str]) -> None:
    (file,) = map(str, source.glob("*.parquet"))
    columns = pq.read_schema(file).names
    check_published(hyper_process(), luid, [file], columns=columns, environment=environment)

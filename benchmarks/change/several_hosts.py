"""Lineitem on the hosts of `make cluster`, beside the same on one machine; needs PostgreSQL."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pyarrow.parquet as pq

from benchmarks.change.pipeline import publish
from benchmarks.change.spark_sources import change_everywhere, link
from benchmarks.fresh_process import in_fresh_process
from benchmarks.lineitem import generate
from benchmarks.peers.process_tree import processor_seconds
from benchmarks.published import check_published
from tableau_pipeline.demo.sandbox_process import sandbox_process
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.cluster.deployment import Transfer, Transfers, deployment

_MEMORY = "2g"
_HEADINGS = (
    *("where", "what changed", "decision", "seconds", "processor, s"),
    *("MB read", "MB written", "requests"),
)


@dataclass(frozen=True)
class _Refresh:
    """What a refresh took, from the model to the published data source.

    Attributes:
        where: on which deployment.
        what: had changed before.
        wall: seconds.
        cpu: processor seconds of all processes, those of the server and of the services included.
        store: what was read from the object store and written to it; None without one.
    """

    where: str
    what: str
    decision: str
    wall: float
    cpu: float
    store: Transfer | None


def compare_with_several_hosts(scale: float) -> None:
    """Print a table: the first publish, 1 % of the rows changed, and nothing new."""
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
    yield from (f"{refresh.wall:.1f}", f"{refresh.cpu:.1f}")
    if store := refresh.store:
        yield from (f"{store.read / 1e6:.1f}", f"{store.written / 1e6:.1f}", f"{store.requests}")
    else:
        yield from ("", "", "")


def _one_machine(lineitem: Path, folder: Path) -> list[_Refresh]:
    folder.mkdir()
    with sandbox_process(folder / "sandbox", port=0) as tableau:
        environment = {**tableau, "PIPELINE_DATA_DIR": str(folder)}
        return [*_refreshes("one machine", lineitem, folder, environment)]


def _several_hosts(lineitem: Path, folder: Path) -> list[_Refresh]:
    folder.mkdir()
    with deployment(folder / "hosts") as running:
        environment = running.hosts["host-a"].environment
        return [*_refreshes("`make cluster`", lineitem, folder, environment, running.transfers)]


def _refreshes(
    where: str,
    lineitem: Path,
    folder: Path,
    environment: Mapping[str, str],
    transfers: Transfers | None = None,
) -> Iterator[_Refresh]:
    """Publish, change 1 % of the rows and refresh, and refresh once more."""
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

"""Compare an increment of 1 % of TPC-H's lineitem with a full refresh to the same content."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.fresh_process import in_fresh_process
from benchmarks.lineitem import KEY, Content, write_contents
from benchmarks.one_refresh import Cost, refreshed
from benchmarks.published import check_published
from benchmarks.results import figure
from benchmarks.uplink import uplink
from tableau_pipeline.core.declaration import Declaration, Republish, Table
from tableau_pipeline.core.journal_store import script_journal
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.demo.sandbox_process import sandbox_process
from tableau_pipeline.extracts.content import table_source
from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.process import hyper_process

_UPLINK = 12_500_000  # bytes per second: 100 Mbit/s

# The many updates of a measurement must not make this data source publish in full.
INCREMENT = Declaration(
    key="increment",
    name="Increment",
    project="Default",
    tables=(Table("lineitem", "lineitem", policy=Diff(KEY)),),
    republish=Republish(growth=1000),
    reconcile=None,
)
# The cheapest full refresh: the table declares no key, so the refresh has no key to check.
FULL = Declaration(
    key="full",
    name="Full",
    project="Default",
    tables=(Table("lineitem", "lineitem"),),
    reconcile=None,
)


@dataclass(frozen=True)
class Run:
    """The costs of both ways to the same content, and of one more refresh without a change.

    Attributes:
        rows: the bytes of a `.hyper` file that holds only the changed rows.
    """

    increment: Cost
    full: Cost
    nothing: Cost
    rows: int


def compare_with_full_refresh(scale: float, runs: int) -> None:
    """Print the ratios of an increment to a full refresh.

    Then print the peak memory at this scale and at a tenth of it.
    """
    small = _measure(scale / 10, runs=2)
    large = _measure(scale, runs=runs)
    print(f"\nTPC-H lineitem at scale {scale:g}, {runs} runs: median (min to max)")
    for what, values in {
        "payload / bytes of the changed rows": [run.increment.shipped / run.rows for run in large],
        "client seconds, increment / full": [
            run.increment.client / run.full.client for run in large
        ],
        "processor seconds, increment / full": [run.increment.cpu / run.full.cpu for run in large],
        "all seconds, increment / full": [run.increment.wall / run.full.wall for run in large],
        "all seconds but the server's, increment / full": [
            (run.increment.wall - run.increment.server) / (run.full.wall - run.full.server)
            for run in large
        ],
        "nothing changed: seconds of planning": [run.nothing.phases["plan"] for run in large],
        "nothing changed: client seconds": [run.nothing.client for run in large],
    }.items():
        print(f"{what}: {figure(what, values)}")
    for way in ("increment", "full"):
        peaks = [
            figure(f"MB of Python, {way}, {size}", [getattr(run, way).peak / 1e6 for run in of], 0)
            for size, of in (("a tenth", small), ("all", large))
        ]
        print(f"MB of Python at scale {scale / 10:g} and {scale:g}, {way}: {' and '.join(peaks)}")


def _measure(scale: float, runs: int) -> list[Run]:
    with _bench(scale) as bench:
        return [bench.run(number) for number in range(runs)]


@contextmanager
def _bench(scale: float) -> Generator["_Bench"]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        contents = in_fresh_process(write_contents, folder, scale)
        with (
            sandbox_process(
                folder / "sandbox", port=0, options=["--kept-revisions", "1"]
            ) as server,
            uplink(server["TABLEAU_SERVER_URL"], bytes_per_second=_UPLINK) as url,
        ):
            bench = _Bench(folder, contents, {**server, "TABLEAU_SERVER_URL": url})
            for declaration in (INCREMENT, FULL):
                bench.refresh(declaration, contents[0])
            yield bench


@dataclass(frozen=True)
class _Bench:
    """Two data sources, which hold the first content before the first run."""

    folder: Path
    contents: tuple[Content, Content]
    environment: Mapping[str, str]

    def run(self, number: int) -> Run:
        """Refresh both data sources to the content that they do not hold yet."""
        content = self.contents[(number + 1) % 2]
        ways: list[Callable[[], Cost]] = [
            lambda: self.refresh(INCREMENT, content),
            lambda: self.refresh(FULL, content, full=True),
        ]
        if number % 2:
            full, increment = ways[1](), ways[0]()
        else:
            increment, full = ways[0](), ways[1]()
        nothing = self.refresh(INCREMENT, content)
        run = Run(increment, full, nothing, rows=self._bytes_of_rows(content))
        _check_decisions(run)
        for each in (INCREMENT, FULL):
            self._check(each, content)
        for way, cost in (("increment", increment), ("full", full), ("nothing", nothing)):
            print(f"{way:>9}: {_line(cost)}", flush=True)
        return run

    def refresh(self, declaration: Declaration, content: Content, *, full: bool = False) -> Cost:
        return in_fresh_process(
            refreshed,
            declaration,
            content.model,
            folder=self.folder,
            environment=self.environment,
            full=full,
        )

    def _bytes_of_rows(self, content: Content) -> int:
        rows = table_source("lineitem", content.changed)
        return build_extract(hyper_process(), self.folder / "rows.hyper", tables=[rows]).size

    def _check(self, declaration: Declaration, content: Content) -> None:
        journal = script_journal(self.folder / "journal", declaration.key)
        checkpoint = journal.history().checkpoint
        luid = str(checkpoint and checkpoint.luid)
        check_published(
            hyper_process(),
            luid,
            content.model.paths,
            columns=[column.name for column in content.model.columns],
            environment=self.environment,
        )


def _check_decisions(run: Run) -> None:
    done = run.increment.decision, run.full.decision, run.nothing.decision
    if done != ("update", "publish (replace)", "no change"):
        raise RuntimeError(f"the refreshes did something else: {done}")
    if run.nothing.opened or run.nothing.hyperd:
        raise RuntimeError(f"no change, but hyperd or files were used: {run.nothing.opened}")


def _line(cost: Cost) -> str:
    phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in cost.phases.items())
    return (
        f"{cost.wall:.2f} s: client {cost.client:.2f}, uplink {cost.uplink:.2f}, server "
        f"{cost.server:.2f} ({phases}); processor {cost.cpu:.2f} s; {cost.shipped / 1e6:.1f} MB "
        f"sent; peak {cost.peak / 1e6:.0f} MB"
    )

"""What a change of 1 % of lineitem costs, from the model to the published data source.

Each turn changes the source. Then the turn reaches the new content in two ways. The first way ships
the change. The second way works in full: Spark writes the whole model, if the case has a model, and
the pipeline publishes the whole data source. Each way is a run of Dagster in a fresh process. A
sandbox in another process receives the requests.
"""

import math
import os
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.change.cases import CASES, Case, check, remove_old_files, write_source
from benchmarks.change.disk import watched_disk
from benchmarks.change.pipeline import Cost, publish, start_spark
from benchmarks.fresh_process import in_fresh_process
from benchmarks.lineitem import generate
from benchmarks.results import figure
from tableau_pipeline.demo.sandbox_process import sandbox_process

# The memory limit of hyperd, which HYPER_MEMORY_LIMIT overrides.
_MEMORY = "2g"


@dataclass(frozen=True)
class Turn:
    """The costs of two ways to the same content: shipping the change, and working in full.

    Attributes:
        spark: the processor seconds of starting a Spark session that writes nothing; 0 if the case
            has no model.
    """

    change: Cost
    full: Cost
    spark: float


def compare_changes(scale: float, runs: int, *, cases: Sequence[str]) -> None:
    """Print a table of the cases. Only one case at a time takes space on the disk."""
    memory = os.environ.get("HYPER_MEMORY_LIMIT") or _MEMORY
    found: dict[str, list[Turn]] = {}
    disk: dict[str, int] = {}
    for letter in cases:
        with (
            TemporaryDirectory() as name,
            watched_disk(Path(name)) as peak,
            _bench(CASES[letter], Path(name), scale, memory=memory) as bench,
        ):
            found[letter] = [bench.turn(number) for number in range(runs)]
        disk[letter] = peak.bytes
    print(f"\nlineitem at scale {scale:g}, {runs} turns, hyperd within {memory}\n")
    print(_table(found, disk))


@contextmanager
def _bench(case: Case, folder: Path, scale: float, *, memory: str) -> Generator["_Bench"]:
    """Yield a `_Bench` whose data source has been published with the rows of the source."""
    lineitem = generate(folder / "tpch", scale)
    write_source(case.kind, lineitem, folder / "source")
    if case.kind == "partitions":
        lineitem.unlink()  # The source now has the rows.
    options = ["--kept-revisions", "1"]
    with sandbox_process(folder / "sandbox", port=0, options=options) as environment:
        (folder / "tmp").mkdir()
        environment |= {
            "PIPELINE_DATA_DIR": str(folder),
            "HYPER_MEMORY_LIMIT": memory,
            "TMPDIR": str(folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
        }
        bench = _Bench(case, folder, lineitem, environment, math.ceil(scale / 2))
        bench.publish()
        yield bench


@dataclass(frozen=True)
class _Bench:
    """A data source and the source of its rows, in one folder.

    Attributes:
        slices: the number of parts in which the published rows are compared, to save memory.
    """

    case: Case
    folder: Path
    lineitem: Path
    environment: Mapping[str, str]
    slices: int

    def turn(self, number: int) -> Turn:
        """Change the source; refresh the data source by the change alone, then in full."""
        case = self.case
        spark = in_fresh_process(start_spark) if case.has_model else 0
        slots = case.change(self.lineitem, self.folder / "source", number)
        change = self.publish(slots)
        full = self.publish(full=True)
        for way, cost in ((case.title, change), ("the same, in full", full)):
            print(f"{way}: {_line(cost)}", flush=True)
        _check_decisions(case, change, full)
        return Turn(change, full, spark)

    def publish(self, slots: Sequence[str] = (), *, full: bool = False) -> Cost:
        """Refresh the data source, remove files of old versions, and compare the published rows."""
        kind, folder = self.case.kind, self.folder
        cost = in_fresh_process(publish, kind, folder, self.environment, slots=slots, full=full)
        shutil.rmtree(folder / "extracts", ignore_errors=True)
        remove_old_files(kind, folder)
        in_fresh_process(
            check, kind, folder, cost.luid, environment=self.environment, slices=self.slices
        )
        return cost


def _check_decisions(case: Case, change: Cost, full: Cost) -> None:
    done = change.decision, full.decision
    if done != ("update", "publish (replace)"):
        raise RuntimeError(f"{case.title}: the refreshes did something else: {done}")
    if not case.has_model and "java" in change.cpu:
        raise RuntimeError(f"{case.title}: a JVM was started")


def _line(cost: Cost) -> str:
    programs = ", ".join(f"{name} {seconds:.2f}" for name, seconds in cost.cpu.items())
    return (
        f"{cost.decision}, {cost.wall:.2f} s; processor "
        f"{cost.processor:.2f} s ({programs}); {cost.sent / 1e6:.1f} MB sent; peak of Python "
        f"{cost.python / 1e6:.0f} MB, of hyperd {cost.hyperd / 1e6:.0f} MB "
        f"(load {os.getloadavg()[0]:.1f})"
    )


def _table(found: Mapping[str, Sequence[Turn]], disk: Mapping[str, int]) -> str:
    """Return the turns as a Markdown table; each cell shows median (minimum to maximum)."""
    lines = [
        "| what changed | processor, s | in full | ratio | without Spark's start | seconds "
        "| in full | MB sent | in full | MB of hyperd | in full | MB of Python | in full "
        "| GB of disk |",
        f"|{' --- |' * 14}",
    ]
    for letter, turns in found.items():
        cells = [f"({letter}) {CASES[letter].title}"]
        title = CASES[letter].title
        cells += _both(title, turns, "processor")
        ratios = [turn.change.processor / turn.full.processor for turn in turns]
        cells.append(figure(f"{title}: ratio", ratios, 3))
        without = [(turn.change.processor - turn.spark) / turn.full.processor for turn in turns]
        name = f"{title}: ratio without Spark's start"
        cells.append(figure(name, without, 3) if CASES[letter].has_model else "")
        cells += _both(title, turns, "wall")
        for what in ("sent", "hyperd", "python"):
            cells += _both(title, turns, what, unit=1e6, digits=1 if what == "sent" else 0)
        cells.append(figure(f"{title}: GB of disk", [disk[letter] / 1e9], 1))
        lines.append(f"| {' | '.join(cells)} |")
    starts = [turn.spark for turns in found.values() for turn in turns if turn.spark]
    if starts:
        name = "Spark that starts and writes nothing"
        lines += ["", f"{name}: {figure(name, starts)} processor seconds"]
    return "\n".join(lines)


def _both(
    title: str, turns: Sequence[Turn], what: str, *, unit: float = 1, digits: int = 2
) -> Sequence[str]:
    return [
        figure(
            f"{title}: {what}, {way}",
            [getattr(getattr(turn, way), what) / unit for turn in turns],
            digits,
        )
        for way in ("change", "full")
    ]

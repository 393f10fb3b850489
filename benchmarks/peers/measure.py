"""Let one contender build one `.hyper` file; measure the cost, and compare the rows."""

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
from tableauhyperapi import HyperProcess, TableName, Telemetry

from benchmarks.bare import differing_rows
from benchmarks.peers.environments import python_of
from benchmarks.peers.inputs import Input
from benchmarks.peers.process_tree import processor_seconds, watched_memory
from benchmarks.peers.protocol import ANSWER, SCHEMA, TABLE

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Contender:
    """A way from Spark to `.hyper`.

    Attributes:
        module: the name of the contender's module in this package.
        environment: the contender's Python environment; None means our own.
    """

    name: str
    module: str
    option: str = ""
    environment: str | None = None


@dataclass(frozen=True)
class Cost:
    """What a build took, from a session with open Parquet files to the finished `.hyper` file.

    Attributes:
        wall: seconds on the clock.
        cpu: processor seconds of the contender and of all processes that it started.
        peak: the most bytes of memory that all these processes held.
        size: the bytes of the file.
        differing: the number of rows that differ from the input.
    """

    wall: float
    cpu: float
    peak: int
    size: int
    differing: int


def measure(contender: Contender, rows: Input) -> Cost:
    """Let a contender build its file, in a process and a JVM of its own.

    Raises:
        RuntimeError: the contender failed; the message ends with the contender's last output.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log"
        command = [python_of(contender.environment), "-m", f"benchmarks.peers.{contender.module}"]
        with (
            log.open("w") as errors,
            subprocess.Popen(
                [*command, rows.folder, folder, *contender.option.split()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
            ) as process,
        ):
            _answer(process, contender, log)
            cpu = processor_seconds(process.pid)
            started = time.perf_counter()
            with watched_memory(process.pid) as peak:
                _go_on(process)
                path = Path(_answer(process, contender, log))
                wall = time.perf_counter() - started
            cpu = processor_seconds(process.pid) - cpu
            _go_on(process)
            process.wait()
        return Cost(wall, cpu, peak.bytes, path.stat().st_size, _differing(path, rows))


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[str], contender: Contender, log: Path) -> str:
    assert process.stdout
    for line in process.stdout:
        if line.startswith(ANSWER):
            return line.removeprefix(ANSWER).strip()
    process.wait()
    raise RuntimeError(f"{contender.name} failed:\n{log.read_text()[-5000:]}")


def _differing(path: Path, rows: Input) -> int:
    # End this hyperd at once: the next contender needs its memory.
    with HyperProcess(
        Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU, parameters={"log_config": ""}
    ) as hyper:
        return differing_rows(
            hyper,
            path,
            TableName(SCHEMA, TABLE),
            files=rows.files,
            columns=pq.read_schema(rows.files[0]).names,
            key=rows.key,
        )

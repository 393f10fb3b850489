"""Recorded figures of benchmarks, and the report of figures that got worse."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.journal_requests import measure_journal
from benchmarks.peers.process_tree import processor_seconds, processor_seconds_of


def test_only_what_got_worse_is_told(tmp_path: Path):
    """Prevents: a report misses a figure that got worse, or lists figures that only vary."""
    file, before = tmp_path / "results.json", {}
    for values in ((1.0, 1.1, 0.9), (1.2, 1.2, 0.9)):
        before = json.loads(file.read_text()) if file.exists() else {}
        assert results.figure("seconds", values).startswith(f"{values[0]:.2f} (0.90 to")
        results.figure("speed", [10 / values[0]], more_is_better=True)
        results.figure("noise", [values[0] ** 0.2])
        results.figure("requests", [values[0] - 1])
        results.figure("rows that differ", [0])
        results.write("one", file, load=0.1)
    after = json.loads(file.read_text())
    assert after["one"]["figures"]["seconds"]["runs"] == 3
    assert after["one"]["load before"] == 0.1
    assert [*results.worse(before, after)] == [
        "one: requests: 0 -> 0.2 (+inf%)",
        "one: seconds: 1 -> 1.2 (+20%)",
        "one: speed: 10 -> 8.33 (-17%)",
    ]
    assert [*results.worse(after, before)] == []
    assert [*results.worse({}, after)] == []


def test_a_benchmark_without_a_figure_fails(tmp_path: Path):
    """Prevents: a benchmark runs for an hour and records no figure."""
    with pytest.raises(RuntimeError, match="one has kept no figure"):
        results.write("one", tmp_path / "results.json", load=0)
    assert [*tmp_path.iterdir()] == []


def test_what_was_measured_otherwise_is_another_entry(tmp_path: Path):
    """Prevents: figures of scale 10 replace figures of scale 1, or seem ten times worse."""
    file = tmp_path / "results.json"
    for options, seconds in (({}, 1.0), ({"scale": "10", "cases": "a,b"}, 10.0)):
        results.figure("seconds", [seconds])
        results.write(results.entry("change", options), file, load=0)
    kept = json.loads(file.read_text())
    assert [*kept] == ["change", "change --scale 10 --cases a,b"]
    first = {"change": kept["change"]}
    assert [*results.worse(first, kept)] == []


def test_the_requests_of_a_journal_are_kept(tmp_path: Path):
    """Prevents: each refresh sends one more request, and no recorded figure shows that."""
    measure_journal([(2, 1)])
    file = tmp_path / "results.json"
    results.write("journal", file, load=0)
    kept = json.loads(file.read_text())["journal"]["figures"]
    assert sorted(kept) == [
        f"{operation}, 2 data sources, 2 records: {what}"
        for operation in ("claim and release", "status")
        for what in ("requests of each", "seconds")
    ]
    # One request is for the deployment; each data source needs a listing and a read.
    assert kept["status, 2 data sources, 2 records: requests of each"]["median"] == 2.5


_FORGETS_ITS_CHILD = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
burn = "import time\\nwhile time.process_time() < 0.5: pass\\nprint(flush=True)\\ninput()"
child = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE)
input()
child.communicate(b"x\\n")
print(flush=True)
input()
"""


def test_processes_that_end_take_no_seconds_away():
    """Prevents: a benchmark shows too few processor seconds, because Spark ended an idle worker."""
    command = [sys.executable, "-c", _FORGETS_ITS_CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout

        def end_the_child() -> None:
            process.stdin.write(b"x\n")
            process.stdin.flush()
            process.stdout.readline()

        process.stdout.readline()
        total = processor_seconds(os.getpid())
        used = processor_seconds_of(end_the_child)
        assert processor_seconds(os.getpid()) < total - 0.4
        assert used >= 0
        process.communicate(b"x\n")

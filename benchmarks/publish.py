"""Compare the command `publish` with a short script that checks nothing."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.files import COLUMNS, ROWS, generated
from benchmarks.peers.process_tree import processes
from benchmarks.results import figure
from tableau_sandbox.testing import Sandbox, running_sandbox

_COMMAND = [str(Path(sys.executable).with_name("tableau-pipeline")), "publish"]
_SCRIPT = [sys.executable, str(Path(__file__).with_name("by_script.py"))]


def compare_publish(runs: int) -> None:
    """Print the costs of each way, in fresh processes by turns; then the bytes of a change."""
    with TemporaryDirectory() as name, running_sandbox(Path(name, "sandbox")) as sandbox:
        folder = Path(name)
        path = generated(folder / "rows.csv", ROWS)
        environment = {
            **os.environ,
            "TABLEAU_SERVER_URL": sandbox.url,
            "TABLEAU_TOKEN_NAME": sandbox.token_name,
            "TABLEAU_TOKEN_VALUE": sandbox.token_secret,
            "PIPELINE_DATA_DIR": str(folder / "data"),
        }
        declared = [*_COMMAND, str(path), "--columns", COLUMNS]
        ways: dict[str, Sequence[str]] = {
            "script": [*_SCRIPT, str(path)],
            "publish": declared,
            "publish, types inferred": [*_COMMAND, str(path)],
        }
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for run in range(runs + 1):
            for way, command in ways.items():
                named = f"{way} {run}" if way == "script" else f"--name={way} {run}"
                costs = _costs([*command, named], environment)
                if run:  # the first run fills the caches of the disk
                    found[way].append(costs)
        print(f"\n{path.stat().st_size / 1e6:.0f} MB of CSV, {ROWS:,} rows, {runs} runs")
        print("| way | seconds | processor seconds | ratio |\n| --- | --- | --- | --- |")
        for way, costs in found.items():
            seconds, used = zip(*costs, strict=True)
            ratios = [one / other[1] for one, other in zip(used, found["script"], strict=True)]
            cells = [
                figure(f"{way}: {what}", values)
                for what, values in (("seconds", seconds), ("processor", used), ("ratio", ratios))
            ]
            print(f"| {way} | {' | '.join(cells)} |")
        _print_change(folder, sandbox, environment)


def _costs(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds of a process on the clock, and its processor seconds with hyperd's."""
    started, used = time.perf_counter(), dict[int, float]()
    with Path(os.devnull).open("w") as nothing:
        process = psutil.Popen(command, env=environment, stdout=nothing, stderr=subprocess.PIPE)
        while process.poll() is None:
            for each in processes(process.pid):
                # Measure often: hyperd ends with its parent, and its processor seconds are lost
                # then.
                with suppress(psutil.NoSuchProcess):
                    times = each.cpu_times()
                    used[each.pid] = times.user + times.system
            time.sleep(0.05)
    if process.returncode:
        raise RuntimeError(process.stderr.read())
    return time.perf_counter() - started, sum(used.values())


def _print_change(folder: Path, sandbox: Sandbox, environment: Mapping[str, str]) -> None:
    """Print the bytes that `publish` sends after about 1 % of the rows have changed."""
    path = folder / "keyed.csv"
    draw = random.Random(2)
    lines = generated(folder / "plain.csv", ROWS).read_text("utf-8").splitlines()
    # Give each row a number, and change about one row of a hundred.
    head, *rows = lines
    before = [f"{number},{row}" for number, row in enumerate(rows)]
    after = [
        row.replace(",privat,", ",gewerblich,") if draw.random() < 0.01 else row for row in before
    ]
    command = [*_COMMAND, str(path), "--name", "keyed", "--key", "id", "--json"]
    sent = []
    for content in (before, after):
        path.write_text("\n".join([f"id,{head}", *content]) + "\n", "utf-8")
        started = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - started
        result = json.loads(done.stdout)
        sent.append(result["bytes_sent"])
        print(f"{result['summary'].split(', http')[0]} ({seconds:.1f} s in all)")
    subprocess.run([*_SCRIPT, str(path), "by script"], env=environment, check=True)
    by_script = Path(f"{path}.hyper").stat().st_size
    name = "1 % changed: bytes / those of the script"
    share = figure(name, [sent[1] / by_script], 3)
    ours = figure("1 % changed: MB", [sent[1] / 1e6])
    script = figure("1 % changed: MB of the script", [by_script / 1e6])
    print(f"Sent: {ours} MB, by the script {script} MB; {name}: {share}")

"""Compare the upload of a large file over a slow line with the time that the line needs."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.results import figure
from benchmarks.uplink import uplink
from tableau_pipeline.publishing.session import Password, signed_in
from tableau_sandbox.testing import running_sandbox

_SIZE, _BYTES_PER_SECOND = 320_000_000, 12_500_000


def compare_uploads(runs: int) -> None:
    """Print a table of uploads with and without delay, as ratios to the time the line needs."""
    floor = _SIZE / _BYTES_PER_SECOND
    print(f"\n{_SIZE / 1e6:.0f} MB at 100 Mbit/s, {runs} runs; the line needs {floor:.1f} s")
    print("| way | seconds | ratio to the line's |\n| --- | --- | --- |")
    with TemporaryDirectory() as name, running_sandbox(Path(name, "sandbox")) as sandbox:
        file = Path(name, "large.hyper")
        file.write_bytes(b"0" * _SIZE)
        user = Password(sandbox.user, sandbox.password)
        for delay in (0.0, 0.2):
            with uplink(sandbox.url, bytes_per_second=_BYTES_PER_SECOND, delay=delay) as url:
                for way, at_once in (("one by one", False), ("four at once", True)):
                    seconds = []
                    for _ in range(runs):
                        with signed_in(url, credentials=user) as site:
                            start = time.monotonic()
                            site.upload(file, in_any_order=at_once)
                            seconds.append(time.monotonic() - start)
                    what = f"{way}, {delay * 1000:.0f} ms of delay"
                    ratios = [each / floor for each in seconds]
                    cells = figure(f"{what}: seconds", seconds), figure(f"{what}: ratio", ratios)
                    print(f"| {what} | {' | '.join(cells)} |", flush=True)

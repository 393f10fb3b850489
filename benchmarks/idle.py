"""Measure what refreshes of forty unchanged data sources cost the server and this process."""

import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from benchmarks.peers.process_tree import processor_seconds
from benchmarks.results import figure
from tableau_pipeline.ingest.publication import FilePublication
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline.scripting.files import publish_files
from tableau_sandbox.testing import running_sandbox

_COUNT = 40


def compare_idle(runs: int) -> None:
    """Print the average requests and processor seconds of a refresh."""
    log = logging.getLogger(__name__)
    log.setLevel(logging.ERROR)
    requests, seconds = list[float](), list[float]()
    with TemporaryDirectory() as name, running_sandbox(Path(name, "sandbox")) as sandbox:
        settings = {
            "TABLEAU_SERVER_URL": sandbox.url,
            "TABLEAU_TOKEN_NAME": sandbox.token_name,
            "TABLEAU_TOKEN_VALUE": sandbox.token_secret,
            "PIPELINE_DATA_DIR": str(Path(name, "data")),
        }
        publications = []
        for number in range(_COUNT):
            path = Path(name, f"{number}.csv")
            path.write_text("".join(f"{row},{number}\n" for row in ["id", *range(1000)]), "utf-8")
            publications.append(FilePublication(paths=(str(path),), name=f"Idle {number}"))
        with mock.patch.dict(os.environ, settings):
            for publication in publications:
                publish_files(publication, log=log)
            for _ in range(runs):
                used = processor_seconds(os.getpid())
                done = [publish_files(each, log=log).done for each in publications]
                seconds.append((processor_seconds(os.getpid()) - used) / _COUNT)
                refreshed = [each for each in done if isinstance(each, Refreshed)]
                if {each.decision for each in refreshed} != {"no change"}:
                    raise RuntimeError("a refresh found a change, so this measured something else")
                requests.append(sum(each.requests for each in refreshed) / _COUNT)
    print(f"\n{_COUNT} refreshes without a change in one process, {runs} runs; per refresh:")
    print(f"requests: {figure('requests', requests, 1)}")
    print(f"processor seconds, with the sandbox's: {figure('processor seconds', seconds)}")

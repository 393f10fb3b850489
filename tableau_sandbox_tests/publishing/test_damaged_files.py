"""Files that hyperd cannot read, or does not survive: a clear refusal, and the sandbox goes on."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tableauserverclient as tsc
from tableauhyperapi import HyperException, HyperProcess

from tableau_sandbox.hyperd import UnreadableFileError, connect, with_hyperd
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.jobs.test_jobs import publish_job
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in, wait_until
from tableau_sandbox_tests.updates.test_update_data import (
    APPEND,
    JobFailed,
    finished,
    update,
)


def kill(hyper: HyperProcess) -> None:
    """The end of a hyperd, as a damaged file brings it about."""

    def is_gone() -> bool:
        try:
            connect(hyper).close()
        except HyperException:
            return True
        return False

    os.kill(int(hyper.endpoint.connection_descriptor.rpartition(".")[2]), signal.SIGKILL)
    wait_until(is_gone)


def changed(file: Path, old: bytes, new: bytes, *, to: Path) -> Path:
    content = file.read_bytes()
    assert old in content
    to.write_bytes(content.replace(old, new))
    return to


@pytest.fixture
def deadly(tmp_path: Path, one_row: Path) -> Path:
    """A file that crashes hyperd: its one row is said to have three columns instead of two."""
    row, two, three = (number.to_bytes(8, "little") for number in (1, 2, 3))
    return changed(one_row, row + two[:4], row + three[:4], to=tmp_path / "deadly.hyper")


def refused(server: tsc.Server, file: Path, *, mode: str = "Overwrite") -> None:
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, file, mode=mode)


@pytest.mark.slow
def test_jobs_with_what_crashes_hyperd(server: tsc.Server, one_row: Path, deadly: Path):
    # Prevents: a job never ends, or the next one fails, because hyperd died of a file.
    item = publish(server, one_row)
    with pytest.raises(JobFailed) as caught:
        finished(server, publish_job(server, deadly))
    assert caught.value.job.status_notes[0]["value"] == "400011"
    with pytest.raises(JobFailed, match="source file cannot be opened") as caught:
        finished(server, update(server, item, APPEND, payload=deadly))
    # Nor does it tell where the sandbox keeps its files.
    assert str(deadly.parent) not in str(caught.value.job.notes)
    assert finished(server, update(server, item, APPEND, payload=one_row)).finish_code == 0
    assert rows_on_server(server, item.id) == [[1, "one"], [1, "one"]]


@pytest.mark.slow
def test_others_do_not_suffer(sandbox: Sandbox, one_row: Path, deadly: Path):
    # Prevents: a good file is refused because hyperd died of the file of someone else.
    def publish_often(share: int) -> None:
        server = signed_in(sandbox)
        for number in range(10):
            publish(server, one_row, name=f"N{share}-{number}")
            if (share, number) == (0, 3):
                refused(server, deadly)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(publish_often, range(4)))


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_work_is_started_again_once(deaths: int):
    # Prevents: work is given up because hyperd died, or begun for ever.
    attempts = []

    def work(hyper: HyperProcess) -> object:
        attempts.append(hyper)
        if len(attempts) <= deaths:
            kill(hyper)
        with connect(hyper) as connection:
            return connection.execute_scalar_query("SELECT 1")

    if deaths < 2:
        assert with_hyperd(work) == 1
    else:
        with pytest.raises(UnreadableFileError):
            with_hyperd(work)
    assert len(attempts) == min(deaths + 1, 2)


def test_work_that_fails_is_not_started_again():
    # Prevents: everything that is refused is tried twice.
    attempts = []

    def work(hyper: HyperProcess) -> object:
        attempts.append(hyper)
        with connect(hyper) as connection:
            return connection.execute_scalar_query("SELECT 1 / 0")

    with pytest.raises(UnreadableFileError, match="division by zero"):
        with_hyperd(work)
    assert len(attempts) == 1


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"name": "Extract"', b'"name": "\xffxtract"'),
        (b'"name": "Extract"', b'"name": ""       '),
        (b'"name": "id"', b'"name": "\xffd"'),
        (b"one\0", b"\xffne\0"),
    ],
)
def test_text_that_is_none(
    server: tsc.Server, tmp_path: Path, one_row: Path, old: bytes, new: bytes
):
    # Prevents: names and values that the Hyper API cannot read are an error of the sandbox.
    item = publish(server, one_row)
    damaged = changed(one_row, old, new, to=tmp_path / "damaged.hyper")
    refused(server, damaged)
    with pytest.raises(JobFailed, match="The file is damaged"):
        finished(server, update(server, item, APPEND, payload=damaged))
    assert rows_on_server(server, item.id) == [[1, "one"]]

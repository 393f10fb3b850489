"""Files that hyperd cannot read, or does not survive: a clear refusal, and the sandbox goes on."""

import os
import signal
from pathlib import Path

import pytest
import tableauserverclient as tsc
from tableauhyperapi import HyperException, HyperProcess

from tableau_sandbox.hyperd import UnreadableFileError, connect, with_hyperd
from tableau_sandbox_tests.samples import publish, rows_on_server, wait_until
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


def refused(server: tsc.Server, file: Path, *, mode: str = "Overwrite") -> None:
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, file, mode=mode)


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

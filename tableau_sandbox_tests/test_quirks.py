import argparse
import re
import time
from collections.abc import Callable
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.command_line.quirk_options import add_quirks, chosen_quirks
from tableau_sandbox.quirks import JobOrder, Quirks
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in
from tableau_sandbox_tests.service.command import started_sandbox
from tableau_sandbox_tests.updates.test_update_data import APPEND, CLEAR, finished, update


def test_options_of_the_command(tmp_path: Path, one_row: Path, monkeypatch: pytest.MonkeyPatch):
    # Prevents: the command takes an option, and does not pass it on.
    options = (
        "--repeated-request=conflict",
        "--updates-move-stamp=never",
        "--update-limit-mb=0.01",
        "--upload-blocks=1",
    )
    with started_sandbox(tmp_path, *options) as (_, url):
        server = signed_in(url)
        item = publish(server, one_row)
        finished(server, update(server, item, CLEAR, id="x"))
        with pytest.raises(tsc.ServerResponseError, match="409093"):
            update(server, item, CLEAR, id="x")
        with pytest.raises(tsc.ServerResponseError, match="max_size_in_mb"):
            update(server, item, APPEND, payload=one_row)
        assert server.datasources.get_by_id(item.id).updated_at == item.updated_at
        assert rows_on_server(server, item.id) == []
        monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")
        large = tmp_path / "large.hyper"
        large.write_bytes(bytes((1 << 20) + 1))
        with pytest.raises(tsc.ServerResponseError, match="no more than 1 blocks"):
            server.fileuploads.upload(str(large))


def test_each_switch_has_an_option():
    # Prevents: an answer can be given in a test, but not to the command, or not in all its values.
    parser = argparse.ArgumentParser()
    add_quirks(parser)
    assert Quirks(**chosen_quirks(parser.parse_args([]))) == Quirks()
    for quirk in fields(Quirks):
        flag, default = quirk.name.replace("_", "-"), quirk.default
        if isinstance(default, bool):
            others = {not default: f"--no-{flag}" if default else f"--{flag}"}
        elif isinstance(default, StrEnum):
            others = {value: f"--{flag}={value}" for value in type(default)}
        else:
            others = {0.5: f"--{flag}=0.5"}
        for value, argument in others.items():
            chosen = chosen_quirks(parser.parse_args([argument]))
            assert Quirks(**chosen) == replace(Quirks(), **{quirk.name: value})


def test_help_lists_all_quirks():
    """Prevents: whoever asks the command for help does not hear of a quirk, or of its values."""
    parser = argparse.ArgumentParser(prog="x")
    add_quirks(parser)
    help_text = " ".join(parser.format_help().split())
    for quirk in fields(Quirks):
        flag, default = f"--{quirk.name.replace('_', '-')}", quirk.default
        # One flag may begin as another one does.
        _, *after_each = re.split(rf"{flag}(?![\w-])", help_text)
        assert after_each, flag
        after = after_each[-1]
        assert quirk.metadata["help"] in after
        if isinstance(default, StrEnum):
            assert f": {', '.join(type(default))} (default: {default})" in after


@pytest.mark.parametrize(
    "wrong", ["--late-stamp-seconds=-1", "--late-stamp-seconds=inf", "--stamps-within-second=never"]
)
def test_senseless_answers(wrong: str, capsys: pytest.CaptureFixture[str]):
    # Prevents: a typing error starts a sandbox that behaves as nobody wanted.
    parser = argparse.ArgumentParser()
    add_quirks(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([wrong])
    assert wrong.partition("=")[0] in capsys.readouterr().err


def test_jobs_may_come_in_any_order(start_sandbox: Callable[..., Sandbox], one_row: Path):
    # Prevents: a pipeline that sends a batch before the last one is done is never caught.
    server = signed_in(start_sandbox(job_order=JobOrder.ANY, job_delay=0.05))
    item = publish(server, one_row)
    for _ in range(10):
        update(server, item, CLEAR)

    def oldest_first() -> list[str]:
        return [job.status for job in server.jobs.filter()][::-1]

    deadline = time.monotonic() + 20
    while (seen := oldest_first()) == sorted(seen, key="Pending".__eq__):
        assert time.monotonic() < deadline, "the jobs came in order"

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import tableauserverclient as tsc

from tableau_sandbox import command_line
from tableau_sandbox.http.app import API_ROUTES
from tableau_sandbox.options import Options
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.vds.api import CALLS
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in
from tableau_sandbox_tests.service.command import started_sandbox
from tableau_sandbox_tests.updates.test_update_data import APPEND, CLEAR, finished, update


def test_options_of_the_command(tmp_path: Path, one_row: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: the command takes an option, and does not pass it on."""
    options = ("--repeated-request=conflict", "--updates-move-stamp=never", "--upload-blocks=1")
    options += ("--update-limit-mb=0.01",)
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


DOCS = Path(__file__).parents[1] / "docs"


def rows(heading: str, *, of: str = "sandbox.md") -> list[list[str]]:
    """The rows of the table below a heading of a page, without the names of its columns."""
    text = (DOCS / of).read_text("utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    _, _, *found = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    return [row.replace("`", "").split(" | ") for row in found]


def test_calls():
    """Prevents: a call that the page promises and the sandbox refuses, or one that it hides."""
    listed = rows("What is faithful")
    documented = [call for _, calls in listed for call in calls.split(", ")]
    known = [f"{route.method} {route.pattern}" for route in API_ROUTES]
    assert sorted(documented) == sorted([*known, *CALLS])


def other_values(name: str, default: Any) -> dict[str, Any]:
    """The arguments for a quirk's other values."""
    flag, hint = name.replace("_", "-"), get_type_hints(Quirks)[name]
    if hint is bool:
        return {f"--no-{flag}" if default else f"--{flag}": not default}
    values = get_args(hint) or ((0.5,) if hint is float else tuple(hint))
    return {f"--{flag}={value}": value for value in values}


def chosen(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Options:
    """The options that the command makes of arguments."""
    made: list[Options] = []

    def stop(options: Options, **_: Any) -> None:
        made.append(options)
        raise OSError(0, "stopped by the test")

    with monkeypatch.context() as context:
        context.setattr(command_line, "sandbox_server", stop)
        command_line.main(["--port", "0", *arguments])
    return made[0]


def test_each_quirk_has_an_option(monkeypatch: pytest.MonkeyPatch):
    # Prevents: an answer can be given in a test, but not to the command, or not in all its values.
    usual = chosen(monkeypatch)
    assert usual == Options()
    for quirk in fields(Quirks):
        for argument, value in other_values(quirk.name, quirk.default).items():
            expected = replace(usual, **{quirk.name: value})
            assert chosen(monkeypatch, argument) == expected, argument


def test_options_that_may_be_repeated(monkeypatch: pytest.MonkeyPatch):
    """Prevents: of several users, sites or names, only the last one exists."""
    made = chosen(
        monkeypatch, "--user=a:b", "--user=c:d:Viewer", "--site=x", "--site=y", "--connected-app",
        f"app:key:{'s' * 32}", "--allowed-host=h",
    )  # fmt: skip
    users = [(user.name, user.site_role) for user in made.users]
    assert users == [("a", "Creator"), ("c", "Viewer")]
    assert (made.sites, made.allowed_hosts) == (("x", "y"), ("h",))
    assert [app.client_id for app in made.connected_apps] == ["app"]


@pytest.mark.parametrize(
    "wrong",
    [
        *("--late-stamp-seconds=-1", "--late-stamp-seconds=inf", "--stamps-within-second=never"),
        *("--rest-version=new", "--kept-revisions=0", "--hyper-profile=2018.1"),
    ],
)
def test_senseless_answers(wrong: str, capsys: pytest.CaptureFixture[str]):
    # Prevents: a typing error starts a sandbox that behaves as nobody wanted.
    with pytest.raises(SystemExit):
        command_line.main([wrong])
    assert wrong.partition("=")[0] in capsys.readouterr().err


def test_page_of_quirks():
    """Prevents: a quirk that the page lacks, or whose values or default it tells wrongly."""
    listed = rows("Quirks for what Tableau leaves open")
    documented = {flag: values.split(", ") for flag, values, _ in listed}
    known = {f"--{each.name.replace('_', '-')}": each for each in fields(Quirks)}
    assert documented.keys() == known.keys()
    hints = get_type_hints(Quirks)
    for flag, quirk in known.items():
        values = {bool: ("no", "yes"), float: (quirk.default,)}.get(hints[quirk.name])
        allowed = values or get_args(hints[quirk.name]) or tuple(hints[quirk.name])
        assert sorted(documented[flag]) == sorted(map(str, allowed))
        default = {True: "yes", False: "no"}.get(quirk.default, str(quirk.default))
        assert documented[flag][0] == default

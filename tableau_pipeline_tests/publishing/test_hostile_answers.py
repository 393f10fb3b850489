"""Every call of a refresh gets answers that no Tableau Server gives."""

import json
import logging
import resource
import zipfile
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing import properties
from tableau_pipeline.publishing.packages import unpack
from tableau_pipeline.publishing.retries import RetryTimes
from tableau_pipeline.publishing.session import Password, PersonalAccessToken
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing import hostile
from tableau_pipeline_tests.publishing.conftest import CLEAR, SignIn, fresh, published
from tableau_pipeline_tests.publishing.hostile import Answer
from tableau_sandbox.testing import Sandbox

SECRET = "vera-secret"
PATIENT = RetryTimes(backoff=0)
IMPATIENT = RetryTimes(backoff=0, read=1, write=1)
# The most bytes by which a hostile answer may increase the memory of the process.
MEMORY = 400 * 2**20
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NO_SUCH = "00000000-0000-0000-0000-000000000000"


def sign_in(given: SimpleNamespace) -> None:
    with given.sign_in(Password("vera", SECRET), url=given.front.url, times=given.times):
        pass


def publish(given: SimpleNamespace) -> None:
    site: TableauSite = given.site
    upload = site.upload(given.file)
    site.publish(upload, name="x", project_id=given.project, mode=PublishMode.CREATE)


def update(given: SimpleNamespace) -> None:
    if given.site.update(given.luid, batch=CLEAR, upload=None, request_id=fresh()) is None:
        raise RefreshError("the server does not name the job")


def rule(given: SimpleNamespace, mode: str) -> properties.Rules:
    return {(str(properties.find_named(given.site, "group", "All Users")), "Write"): mode}


def end_a_warning(given: SimpleNamespace) -> None:
    for text in (fresh(), None):
        properties.set_warning(given.site, given.luid, "x", text)


# For each call: the method and path of the request that gets the answer, and the call itself.
ITEM = "sites/[^/]+/datasources/[^/]+"
WARNINGS = "sites/[^/]+/dataQualityWarnings/datasource/[^/]+"
CALLS: dict[str, tuple[str, str, Callable[[SimpleNamespace], object]]] = {
    "server info": ("GET", "serverInfo", sign_in),
    "sign in": ("POST", "auth/signin", sign_in),
    "projects": ("GET", "sites/[^/]+/projects", lambda it: it.site.find_project("Default")),
    "create a project": (
        "POST", "sites/[^/]+/projects", lambda it: it.site.project(fresh(), create=True)
    ),
    "find by name": (
        "GET", "sites/[^/]+/datasources",
        lambda it: it.site.find_by_name("x", project_id=it.project),
    ),
    "tagged": ("GET", "sites/[^/]+/datasources", lambda it: it.site.tagged("x")),
    "find": ("GET", ITEM, lambda it: it.site.find_by_luid(it.luid)),
    "revisions": ("GET", f"{ITEM}/revisions", lambda it: it.site.find_by_luid(it.luid)),
    "metadata": ("GET", f"{ITEM}/content", lambda it: it.site.metadata(it.luid)),
    "download": ("GET", f"{ITEM}/content", lambda it: it.site.download(it.luid, it.folder)),
    "begin an upload": (
        "POST", "sites/[^/]+/fileUploads", lambda it: it.site.upload(it.file)
    ),
    "a block": ("PUT", "sites/[^/]+/fileUploads/[^/]+", lambda it: it.site.upload(it.file)),
    "publish": ("POST", "sites/[^/]+/datasources", publish),
    "update": ("PATCH", f"{ITEM}/data", update),
    "job": ("GET", "sites/[^/]+/jobs/[^/]+", lambda it: it.site.job(NO_SUCH)),
    "jobs": ("GET", "sites/[^/]+/jobs", lambda it: it.site.jobs(name="x", since=LONG_AGO)),
    "cancel": ("PUT", "sites/[^/]+/jobs/[^/]+", lambda it: it.site.cancel(NO_SUCH)),
    "tag": ("PUT", f"{ITEM}/tags", lambda it: it.site.tag(it.luid, ["x"])),
    "untag": ("DELETE", f"{ITEM}/tags/[^/]+", lambda it: it.site.untag(it.luid, ["x"])),
    "move": (
        "PUT", ITEM, lambda it: it.site.move(it.luid, name="y", project_id=it.project)
    ),
    "describe": (
        "PUT", ITEM, lambda it: properties.set_properties(it.site, it.luid, description="x")
    ),
    "group": (
        "GET", "sites/[^/]+/groups", lambda it: properties.find_named(it.site, "group", "All Users")
    ),
    "name of a user": (
        "GET", "sites/[^/]+/users/[^/]+", lambda it: it.site.user(it.site.user_id)
    ),
    "permissions": (
        "GET", f"{ITEM}/permissions", lambda it: properties.permissions(it.site, it.luid)
    ),
    "give permissions": (
        "PUT", f"{ITEM}/permissions",
        lambda it: properties.set_permissions(it.site, it.luid, rule(it, "Allow"), remove={}),
    ),
    "take permissions": (
        "DELETE", f"{ITEM}/permissions/.*",
        lambda it: properties.set_permissions(it.site, it.luid, {}, remove=rule(it, "Deny")),
    ),
    "warnings": ("GET", WARNINGS, lambda it: properties.quality_warnings(it.site, it.luid)),
    "warn": ("POST", WARNINGS, lambda it: properties.set_warning(it.site, it.luid, "x", fresh())),
    "end a warning": (
        "DELETE", "sites/[^/]+/dataQualityWarnings/[^/]+", end_a_warning
    ),
    "columns": (
        "POST", "vizql-data-service/read-metadata",
        lambda it: it.site.count(it.luid, {"Extract": None}),
    ),
    "count": (
        "POST", "vizql-data-service/query-datasource",
        lambda it: it.site.count(it.luid, {"Extract": None}),
    ),
}  # fmt: skip
QUICK: list[Any] = [
    hostile.page,
    hostile.empty,
    hostile.no_xml,
    hostile.entities,
    hostile.refused_with_entities,
    hostile.endless_list,
    hostile.other_clock,
    hostile.nothing,
    hostile.cut_off,
]
HEAVY: list[Any] = [hostile.bomb, hostile.endless, hostile.endless_chunks, hostile.busy]
SLOW: list[Any] = [hostile.slow, hostile.slow_headers]
# Calls that succeed in spite of the answer: it reports success, and they need no content.
NO_ERRORS = {
    *(
        (answer, call)
        for answer in ("nothing", "empty", "endless_list", "other_clock")
        for call in ("untag", "cancel", "take permissions", "warn", "end a warning")
    ),
    # If the pipeline may not cancel a job, it reads the job's state instead. If it may not see a
    # user, it shows the user's LUID instead of the name.
    ("refusal", "cancel"),
    ("refusal", "name of a user"),
}


@pytest.fixture(scope="module")
def given(
    sandbox: Sandbox, sign_in: SignIn, small: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[SimpleNamespace]:
    """A session through a hostile server, and the arguments of the calls."""
    token = PersonalAccessToken(sandbox.token_name, sandbox.token_secret)
    with (
        hostile.front_of(sandbox.url) as front,
        sign_in(token, url=front.url, times=PATIENT) as site,
    ):
        project = site.project("Default", create=False)
        found = published(site, small, name=f"hostile {fresh()}", project_id=project)
        sent = {"server info": [], "sign in": [SECRET]}
        yield SimpleNamespace(
            front=front,
            site=site,
            sign_in=sign_in,
            times=PATIENT,
            file=small,
            project=project,
            luid=found.luid,
            folder=tmp_path_factory.mktemp("downloads"),
            # The secrets that a call sends.
            secrets=lambda call: sent.get(call, [sandbox.token_secret, site.tsc.auth_token]),
        )


def message_of(given: SimpleNamespace, call: str, answer: Answer) -> str | None:
    """The error message of a call that gets the answer, or None if the call succeeds."""
    method, pattern, run = CALLS[call]
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, monotonic()
    with given.front.answering(method, pattern, answer):
        try:
            run(given)
        except RefreshError as error:
            message = str(error)
        else:
            message = None
    assert given.front.met
    assert monotonic() - began < 10
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < MEMORY
    return message


Check = Callable[[SimpleNamespace, str, Answer], str | None]


@pytest.fixture
def check(caplog: pytest.LogCaptureFixture, capfd: Any) -> Check:
    """Checks that a call fails with a readable message, and that no output has a secret."""
    caplog.set_level(logging.DEBUG)

    def check(given: SimpleNamespace, call: str, answer: Answer) -> str | None:
        message = message_of(given, call, answer)
        written = json.dumps([message, caplog.text, *capfd.readouterr()])
        for secret in [*given.secrets(call), "fr0m-the-page", "0ther"]:
            assert secret not in written
        if (answer.__name__, call) not in NO_ERRORS:
            assert message
            words = ("Error(", "object at 0x", "Traceback", "NoneType")
            assert not any(word in message for word in words)
            assert len(message) < 2000
        return message

    return check


@pytest.mark.parametrize("answer", QUICK, ids=lambda answer: answer.__name__)
@pytest.mark.parametrize("call", CALLS)
def test_answer_of_something_else(given: SimpleNamespace, check: Check, call: str, answer: Answer):
    """Prevents: a proxy's page passes for an empty list, or shows as an error of a parser."""
    check(given, call, answer)


@pytest.mark.few_variants(8)
@pytest.mark.parametrize("answer", HEAVY, ids=lambda answer: answer.__name__)
@pytest.mark.parametrize("call", CALLS)
def test_answer_without_an_end(given: SimpleNamespace, check: Check, call: str, answer: Answer):
    """Prevents: an endless answer fills the memory or the disk."""
    check(given, call, answer)


@pytest.fixture(scope="module")
def impatient(given: SimpleNamespace, sandbox: Sandbox) -> Generator[SimpleNamespace]:
    """The fixture `given`, with a session that does not wait for long."""
    admin = Password(sandbox.user, sandbox.password)
    with given.sign_in(admin, url=given.front.url, times=IMPATIENT) as site:
        yield SimpleNamespace(
            **{**vars(given), "site": site, "times": IMPATIENT, "secrets": lambda call: []}
        )


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", SLOW, ids=lambda answer: answer.__name__)
def test_answer_that_takes_for_ever(
    impatient: SimpleNamespace, check: Check, call: str, answer: Answer
):
    """Prevents: a server that sends one byte at a time blocks a refresh and its token for ever."""
    assert "the answer took longer than 1 s" in str(check(impatient, call, answer))


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("call", CALLS)
def test_redirect_to_another_host(given: SimpleNamespace, check: Check, call: str, status: int):
    """Prevents: a redirect delivers the token, the session or the upload to another host."""
    with hostile.listener() as (url, heard):
        message = check(given, call, hostile.redirect(status, url))
    assert heard == []
    assert url in str(message)


@pytest.mark.parametrize("answer", [hostile.echo, hostile.echo_page], ids=lambda it: it.__name__)
@pytest.mark.parametrize("call", CALLS)
def test_answer_that_quotes_secrets(given: SimpleNamespace, check: Check, call: str, answer: Any):
    """Prevents: an answer that quotes a secret puts the secret into Dagster's events."""
    check(given, call, answer(given.secrets(call)))


SIZE = 10**6


def package(path: Path, *, way: int = zipfile.ZIP_DEFLATED, name: str = "a.hyper") -> Path:
    """A package with a million zeros."""
    with zipfile.ZipFile(path, "w", way) as opened:
        opened.writestr(name, bytes(SIZE))
    return path


def unpacked(path: Path, *, limit: int = SIZE) -> int:
    into = BytesIO()
    unpack(path, ".hyper", into, limit=limit)
    return len(into.getvalue())


@pytest.mark.parametrize("name", ["a.hyper", "Data/Extracts/A.HYPER", "../../a.hyper", "a" * 9999])
def test_the_only_file_of_its_kind(tmp_path: Path, name: str):
    """Prevents: the name of a packed file decides where the file is written."""
    name = f"{name.removesuffix('.hyper')}.hyper"
    assert unpacked(package(tmp_path / "a.tdsx", name=name)) == SIZE
    assert [file.name for file in tmp_path.iterdir()] == ["a.tdsx"]


def test_file_that_unpacks_to_more(tmp_path: Path):
    """Prevents: a kilobyte that unpacks to a gigabyte fills the disk."""
    with pytest.raises(RefreshError, match=r"unpacks to 1\.00 MB, more than 0\.50 MB"):
        unpacked(package(tmp_path / "a.tdsx"), limit=SIZE // 2)


def test_file_that_lies_about_its_size(tmp_path: Path):
    """Prevents: a package that claims a small size unpacks to a larger file."""
    path, into = package(tmp_path / "a.tdsx"), BytesIO()
    claimed = path.read_bytes().replace(SIZE.to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    path.write_bytes(claimed)
    with pytest.raises(ValueError, match="damaged: Bad CRC-32"):
        unpack(path, ".hyper", into, limit=SIZE)
    assert len(into.getvalue()) <= 1000


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression(tmp_path: Path, way: int):
    """Prevents: one block of a bzip2 or LZMA file unpacks to gigabytes in memory."""
    with pytest.raises(ValueError, match="compressed in a way that Tableau does not use"):
        unpacked(package(tmp_path / "a.tdsx", way=way))


def cut(length: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:length]


def flagged(flags: bytes) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        # The flags are at byte 6 of a member's own header, and at byte 8 of its directory entry.
        for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            start = content.index(signature) + at
            content = content[:start] + flags + content[start + 2 :]
        return content

    return change


@pytest.mark.parametrize(
    "damage",
    [cut(0), cut(30), cut(500), cut(-30), flagged(b"\x01\x00"), flagged(b"\x20\x00")],
    ids=["empty", "header", "half", "no end", "password", "patch"],
)
def test_damaged_package(tmp_path: Path, damage: Callable[[bytes], bytes]):
    """Prevents: a damaged, encrypted or patched package ends in an error of a library."""
    path = package(tmp_path / "a.tdsx")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="the package is damaged"):
        unpacked(path)


def test_several_files(tmp_path: Path):
    """Prevents: the pipeline reads only one of several extracts in a package."""
    path = package(tmp_path / "a.tdsx")
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr("b.hyper", b"")
    with pytest.raises(ValueError, match=r"holds 2 \.hyper files, not one"):
        unpacked(path)

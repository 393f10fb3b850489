"""Check the rights of the signed-in user on a site, before a refresh fails for lack of a right."""

import logging
import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import describe_error
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.rendering import megabytes

_LOG = logging.getLogger(__name__)
PUBLISHERS = re.compile("Creator|ExplorerCanPublish|.*Administrator.*|Publisher")
_SKEW_SECONDS, _LAST_DAYS = 60, 14


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """The result of a check.

    Attributes:
        sign: "ok", "!" for a warning, or "x" for an error.
        remedy: what the user can do; "" if nothing.
    """

    sign: str
    topic: str
    text: str
    remedy: str = ""


def check_result(
    topic: str, text: str, *, is_fine: object, sign: str = "x", remedy: str = ""
) -> AccessCheck:
    """Return a result: "ok" if `is_fine` is true; otherwise with this sign and remedy."""
    return AccessCheck("ok", topic, text) if is_fine else AccessCheck(sign, topic, text, remedy)


@contextmanager
def collecting_errors(
    found: list[AccessCheck], topic: str, sign: str = "x", remedy: str = ""
) -> Generator[None]:
    """Catch an error of the block and add it to `found`, so that the remaining checks still run."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - any error is a result
        _LOG.debug("Looking at %s", topic, exc_info=error)
        found.append(AccessCheck(sign, topic, describe_error(error), remedy))


def add_checks(
    found: list[AccessCheck], topic: str, findings: Iterable[AccessCheck], sign: str = "x"
) -> None:
    """Add the results of a check to `found`; if the check raises an error, add the error."""
    with collecting_errors(found, topic, sign):
        found.extend(findings)


def on_site(site: TableauSite) -> Iterator[AccessCheck]:
    """Check the server, its clock, and the user: all data sources depend on these."""
    product = getattr(site.tsc.server_info.get(), "product_version", "?")
    yield AccessCheck("ok", "server", f"{site.url}: Tableau {product}, REST {site.tsc.version}")
    if not re.match(r"http://(127\.|localhost|\[::1\])", site.url):
        is_safe = site.url.startswith("https")
        text = "its certificate is valid" if is_safe else "the connection is not encrypted"
        yield check_result("TLS", text, is_fine=is_safe, sign="!", remedy="use https://")
    skew = abs((datetime.now(UTC) - site.now()).total_seconds())
    text, remedy = f"{skew:.0f} s from that of the server", "set the clock: connected apps need it"
    yield check_result("clock", text, is_fine=skew <= _SKEW_SECONDS, sign="!", remedy=remedy)
    name, role = site.user()
    may = PUBLISHERS.fullmatch(role or "Creator")
    text = f"{name}, {role or 'the server does not report the role'}"
    remedy = "give this user the role Creator or ExplorerCanPublish"
    yield check_result("user", text, is_fine=may, remedy=remedy)
    limit = site.payload_limit
    text = f"up to {megabytes(limit)}" if limit else "none: every refresh publishes the full file"
    remedy = "updates need Tableau 2021.3 or newer"
    yield check_result("updates", text, is_fine=limit, sign="!", remedy=remedy)
    may = site.may_read_jobs()
    text = "this user may ask for them" if may else "this user may not ask for them"
    remedy = "use a site administrator: other users see what a job did only in the data source"
    yield check_result("jobs", text, is_fine=may, sign="!", remedy=remedy)


def on_token(site: TableauSite, name: str) -> Iterator[AccessCheck]:
    """Check when the personal access token `name` expires, if the server reports the date."""
    # List tokens only for a user who signs in with a token: other users may lack the right.
    if name and (ends := site.token_ends().get(name)):
        days, remedy = (ends - site.now()).days, "make a new one under My Account Settings"
        text = f"{name} ends in {days} days, at {ends:%Y-%m-%d}; earlier, if unused for 15 days"
        yield check_result("token", text, is_fine=days >= _LAST_DAYS, sign="!", remedy=remedy)


def on_upload(site: TableauSite) -> Iterator[AccessCheck]:
    """Check that a file of the size of the largest update can be uploaded."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "doctor.hyper"
        file.touch()
        os.truncate(file, size := site.payload_limit)
        site.upload(file)
    yield AccessCheck("ok", "upload", f"{megabytes(size)} arrive; the server deletes them later")


def on_projects(site: TableauSite, declared: Iterable[Declaration]) -> Iterator[AccessCheck]:
    """Check that this user may publish to each declared project."""
    rights = site.may_publish()
    for path, declaration in sorted({item.project_path: item for item in declared}.items()):
        topic, luid = f"project {path}", site.find_project(declaration.project)
        if luid is None:
            text = "to be created" if declaration.create_project else "does not exist"
            remedy = "create it, or set create_project: true"
            yield check_result(topic, text, is_fine=declaration.create_project, remedy=remedy)
            continue
        may = rights.get(luid)
        unless_denied = "may publish" if may else "the server does not report who may publish"
        text = "this user may not publish to it" if may is False else unless_denied
        remedy = "give this user Publish there"
        yield check_result(topic, text, is_fine=may is not False, remedy=remedy)


def on_published(found: list[AccessCheck], site: TableauSite, checkpoint: Checkpoint) -> None:
    """Check the rights of this user on a published data source."""
    name, luid = checkpoint.name, checkpoint.luid or ""
    with collecting_errors(found, f"read {name}"):
        remote = site.find_by_luid(luid)
        if remote is None:
            found.append(AccessCheck("!", f"read {name}", "it no longer exists", "refresh it"))
            return
        site.metadata(luid)
        is_owner = remote.owner_id == site.user_id
        owner = "this user owns it, and so may overwrite, update and tag it"
        other = (
            "another user owns it: overwriting needs the capability Overwrite, and only a refresh "
            "shows whether this user has it"
        )
        text = owner if is_owner else other
        found.append(check_result(f"read {name}", text, is_fine=is_owner, sign="!"))
    remedy = "give this user API Access; without it, refreshes download the file"
    with collecting_errors(found, f"count {name}", "!", remedy):
        tables = (str(checkpoint.target(table).name.unescaped) for table in checkpoint.tables)
        rows = sum(site.count(luid, dict.fromkeys(tables)).values())
        found.append(AccessCheck("ok", f"count {name}", f"the server counts {rows:,} rows"))

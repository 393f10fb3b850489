"""What the user who is signed in may do on a site, looked at before a refresh finds out."""

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
    """What a look has found: `sign` is "ok", "!" or "x"; `remedy` is what to do about it."""

    sign: str
    topic: str
    text: str
    remedy: str = ""


def judged(
    topic: str, text: str, *, is_fine: object, sign: str = "x", remedy: str = ""
) -> AccessCheck:
    """Return "ok" if it is fine, and else this sign and remedy."""
    return AccessCheck("ok", topic, text) if is_fine else AccessCheck(sign, topic, text, remedy)


@contextmanager
def looking(
    found: list[AccessCheck], topic: str, sign: str = "x", remedy: str = ""
) -> Generator[None]:
    """Make an error of the block a finding: all else is looked at all the same."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is
        _LOG.debug("Looking at %s", topic, exc_info=error)
        found.append(AccessCheck(sign, topic, describe_error(error), remedy))


def look(
    found: list[AccessCheck], topic: str, findings: Iterable[AccessCheck], sign: str = "x"
) -> None:
    """Add what a look finds; an error of it is a finding, too."""
    with looking(found, topic, sign):
        found.extend(findings)


def on_site(site: TableauSite) -> Iterator[AccessCheck]:
    """Yield what holds for all data sources: the server, its clock, the user."""
    product = getattr(site.tsc.server_info.get(), "product_version", "?")
    yield AccessCheck("ok", "server", f"{site.url}: Tableau {product}, REST {site.tsc.version}")
    if not re.match(r"http://(127\.|localhost|\[::1\])", site.url):
        is_safe = site.url.startswith("https")
        text = "its certificate is valid" if is_safe else "the connection is not encrypted"
        yield judged("TLS", text, is_fine=is_safe, sign="!", remedy="use https://")
    skew = abs((datetime.now(UTC) - site.now()).total_seconds())
    text, do = f"{skew:.0f} s from that of the server", "set the clock: connected apps need it"
    yield judged("clock", text, is_fine=skew <= _SKEW_SECONDS, sign="!", remedy=do)
    name, role = site.user()
    may, do = (
        PUBLISHERS.fullmatch(role or "Creator"),
        "give it the role Creator or ExplorerCanPublish",
    )
    yield judged("user", f"{name}, {role or 'its role is not told'}", is_fine=may, remedy=do)
    limit = site.payload_limit
    text = f"up to {megabytes(limit)}" if limit else "none: every refresh publishes the full file"
    yield judged("updates", text, is_fine=limit, sign="!", remedy="Tableau 2021.3 has them")
    may = site.may_read_jobs()
    text = "this user may ask for them" if may else "this user may not ask for them"
    do = "use a site administrator: others see only from the data source what a job did"
    yield judged("jobs", text, is_fine=may, sign="!", remedy=do)


def on_token(site: TableauSite, name: str) -> Iterator[AccessCheck]:
    """Yield how long this personal access token still lives, if the server tells."""
    # Whoever signs in without one need not, and may not, ask for it.
    if name and (ends := site.token_ends().get(name)):
        days, do = (ends - site.now()).days, "make a new one under My Account Settings"
        text = f"{name} ends in {days} days, at {ends:%Y-%m-%d}; before, if 15 days are without use"
        yield judged("token", text, is_fine=days >= _LAST_DAYS, sign="!", remedy=do)


def on_upload(site: TableauSite) -> Iterator[AccessCheck]:
    """Upload a file as large as the largest update."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "doctor.hyper"
        file.touch()
        os.truncate(file, size := site.payload_limit)
        site.upload(file)
    yield AccessCheck("ok", "upload", f"{megabytes(size)} arrive; the server drops them again")


def on_projects(site: TableauSite, declared: Iterable[Declaration]) -> Iterator[AccessCheck]:
    """Yield whether this user may publish to each declared project."""
    rights = site.may_publish()
    for path, each in sorted({each.project_path: each for each in declared}.items()):
        topic, luid = f"project {path}", site.find_project(each.project)
        if luid is None:
            text = "to be created" if each.create_project else "is not there"
            do = "create it, or set create_project: true"
            yield judged(topic, text, is_fine=each.create_project, remedy=do)
            continue
        may = rights.get(luid)
        unless_denied = "may publish" if may else "the server does not tell who may publish"
        text = "this user may not publish to it" if may is False else unless_denied
        yield judged(topic, text, is_fine=may is not False, remedy="give it Publish there")


def on_published(found: list[AccessCheck], site: TableauSite, checkpoint: Checkpoint) -> None:
    """Add what this user may do with a data source that is published."""
    name, luid = checkpoint.name, checkpoint.luid or ""
    with looking(found, f"read {name}"):
        remote = site.find_by_luid(luid)
        if remote is None:
            found.append(AccessCheck("!", f"read {name}", "it is no longer there", "refresh it"))
            return
        site.metadata(luid)
        is_owner = remote.owner_id == site.user_id
        owner = "it is its owner, from which follows that it may overwrite, update and tag it"
        other = "another user owns it: overwriting needs Overwrite, which only a refresh tries"
        text = owner if is_owner else other
        found.append(judged(f"read {name}", text, is_fine=is_owner, sign="!"))
    with looking(found, f"count {name}", "!", "give it API Access; until then files are read back"):
        tables = (str(checkpoint.target(each).name.unescaped) for each in checkpoint.tables)
        rows = sum(site.count(luid, dict.fromkeys(tables)).values())
        found.append(AccessCheck("ok", f"count {name}", f"the server counts {rows:,} rows"))

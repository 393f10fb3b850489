"""Decide whether a refresh may send an update, or only whole files."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tableau_pipeline.core.checkpoint import Checkpoint, NoUpdates
from tableau_pipeline.core.drift import LONGEST_LAG, RemoteDatasource, is_late
from tableau_pipeline.core.site_record import SiteRecord
from tableau_pipeline.publishing.site import TableauSite

# After a refused update, send whole files for this time. Then try an update again, because an
# administrator may have allowed updates.
_RETRY_AFTER = timedelta(days=7)


def record_of(server: TableauSite, place: Path | str) -> SiteRecord:
    """Return the record of what our sessions have learned about a site.

    Args:
        place: the path or URL of the folder of these records.
    """
    return SiteRecord(place, server=server.url, site=server.site, release=server.release)


def learn_of_stamp(
    site: SiteRecord, checkpoint: Checkpoint, remote: RemoteDatasource, *, now: datetime
) -> None:
    """Learn whether the last updates changed the time stamp late (after their refresh) or never.

    Args:
        checkpoint: the record of a refresh; the server certainly has the rows of this refresh.
        now: the present time by the server's clock.
    """
    if not checkpoint.late:
        return
    stamp, last = remote.updated_at, checkpoint.late[-1]
    if stamp != checkpoint.updated_at and is_late(stamp, checkpoint.late):
        site.learn(updates_move_stamp=True, noted_still=False)
        first = next(window for window in checkpoint.late if is_late(stamp, [window]))
        site.knows_lag("update", max((stamp - first.end).total_seconds(), 0))
    elif stamp < last.start and now > last.end + timedelta(seconds=LONGEST_LAG):
        site.learn(updates_move_stamp=False)


@dataclass(frozen=True, slots=True)
class WholeFiles:
    """The reason why a refresh may send only whole files.

    Attributes:
        why: the reason in words, as a part of a sentence.
        warning: what a user can do to make updates possible; None if a user can do nothing.
    """

    why: str
    warning: str | None = None


def whole_files(
    server: TableauSite,
    site: SiteRecord,
    refused: NoUpdates | None,
    *,
    is_own: bool,
    reads_jobs: Callable[[], bool],
    declaration: str,
    now: datetime,
) -> WholeFiles | None:
    """Return why only whole files may be sent; None if an update may be sent.

    Args:
        site: the record of what our sessions have learned about the site.
        refused: why the last update of this data source failed; None if it did not fail.
        is_own: whether this user owns the data source.
        reads_jobs: a function that returns whether this user may ask for jobs; it may ask the
            server.
        declaration: the digest of the declared tables.
    """
    if server.payload_limit == 0:
        return WholeFiles("the server has no data updates, which came with Tableau 2021.3")
    if limitation := _after_refusal(
        server, site, refused, is_own=is_own, declaration=declaration, now=now
    ):
        return limitation
    # Without the job, we find the effect of a request in the data source. The effect of a publish
    # always shows there. The effect of an update shows only if updates on this site change the time
    # stamp.
    moves = site.facts.updates_move_stamp
    if not reads_jobs() and not moves:
        return WholeFiles(
            "this user may not ask for jobs, and no update on this site is known to have changed "
            "the time stamp of a data source",
            "Updates need a user who may ask for jobs: a site administrator",
        )
    if site.facts.loses_jobs and moves is False:
        reason = "the server forgets jobs at once, and updates do not change the time stamp there"
        return WholeFiles(reason)
    return None


def _after_refusal(
    server: TableauSite,
    site: SiteRecord,
    refused: NoUpdates | None,
    *,
    is_own: bool,
    declaration: str,
    now: datetime,
) -> WholeFiles | None:
    """Return why the server would probably refuse an update again; None to try an update."""
    if (
        refused
        and refused.is_final
        and (refused.declaration, refused.version) == (declaration, server.tsc.version)
    ):
        retry = refused.since + _RETRY_AFTER
        if now < retry:
            return WholeFiles(
                "updates of it were refused",
                f"{refused.why.removesuffix('.')}. Until then, it is published in full. An update "
                f"is tried again from {retry:%Y-%m-%d} on, or when the declaration of its tables "
                "changes",
            )
    since = site.facts.refused_others.get(server.user_id)
    if not is_own and since and now < since + _RETRY_AFTER:
        return WholeFiles(
            "another user owns it, and an update of such a data source was refused here",
            "Only its owner may update a data source: make this user the owner, or declare "
            "`owner`. Until then, it is published in full. An update is tried again from "
            f"{since + _RETRY_AFTER:%Y-%m-%d} on",
        )
    return None

"""Find out from the data source whether a request took effect, if the server hides the job."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.drift import Change, RemoteDatasource, Stamp
from tableau_pipeline.core.journal import Intent
from tableau_pipeline.outcome import Distrust, Doubt
from tableau_pipeline.publishing.site import TableauSite

# The server's times of a request and of its effect may differ by this much.
SLACK = timedelta(seconds=2)

# The result of comparing the published rows with the rows of a checkpoint, which is a refresh's
# record of the data source. "equal": all values are equal. "counts": the numbers of rows are equal,
# and the values were not compared. None: neither values nor numbers could be compared.
Likeness = Literal["equal", "counts", "differs"] | None


SUPPOSED = (
    "only the time stamp says that it took effect, and another user may have changed the time "
    "stamp. This user may not ask for the job, or the server has removed the job; revisions cannot "
    "be seen, and rows are not compared. Declare `reconcile`, or let this user ask for jobs (site "
    "administrator)"
)


@dataclass(frozen=True, slots=True)
class Effect:
    """A request that took effect.

    Attributes:
        remote: the data source after the request.
        is_proved: whether a comparison found that the published values equal the sent values.
        is_supposed: whether only the time stamp shows the effect. Then another user may have
            changed the time stamp.
    """

    remote: RemoteDatasource
    is_proved: bool
    is_supposed: bool = False


@dataclass(frozen=True, slots=True)
class Effects:
    """Looks for the effects of requests in data sources.

    If no effect shows, the request may still take effect, because its job may be queued.

    Args:
        likeness: a function that compares the rows of a data source with a checkpoint.
    """

    server: TableauSite
    likeness: Callable[[Checkpoint, RemoteDatasource], Likeness]
    _compared: dict[Stamp, Likeness] = field(default_factory=dict)

    def of(self, intent: Intent, *, is_over: bool) -> Effect | None:
        """Return the effect of a request; None if the data source does not show it yet.

        Args:
            is_over: whether the job of the request has ended. If so, an effect must show by now.
        """
        if intent.luid is None:
            created = self.server.find_by_name(intent.name, project_id=intent.project_id)
            is_ours = created and created.owner_id == self.server.user_id
            earliest = intent.recorded_at.replace(microsecond=0) - SLACK
            return Effect(created, False) if is_ours and created.created_at >= earliest else None
        remote = self.server.find_by_luid(intent.luid)
        if (
            remote
            and remote.updated_at == intent.before
            and remote.revision != intent.before_revision
        ):
            # The publish took effect between our requests for the time stamp and for the revision:
            # ask again.
            remote = self.server.find_by_luid(intent.luid)
        if remote is None or not (is_over or _has_moved(intent, remote)):
            return None
        if intent.target is None:
            return Effect(remote, False) if _has_moved(intent, remote) else None
        # Another user may have changed the time stamp. So compare the contents, if that is
        # possible.
        if remote.stamp not in self._compared:
            self._compared[remote.stamp] = self.likeness(intent.target, remote)
        match self._compared[remote.stamp]:
            case "equal" if intent.mode is None or _has_moved(intent, remote):
                return Effect(remote, True)
            case "counts" if _has_moved(intent, remote):
                return Effect(remote, False)
            case None if _has_moved(intent, remote):
                return Effect(remote, False, is_supposed=_lacks_revisions(intent, remote))
        return None

    @property
    def is_refuted(self) -> bool:
        """Whether the last comparison found other contents than the request would leave."""
        return [*self._compared.values()][-1:] == ["differs"]


def misdirected(intent: Intent, remote: RemoteDatasource) -> Distrust | None:
    """Return why a publish may have changed another data source; otherwise None.

    The server finds the data source to replace only by the name and project in the request.
    """
    is_named = (remote.name, remote.project_id) == (intent.name, intent.project_id)
    if intent.mode is None or intent.luid is None or is_named:
        return None
    detail = (
        f'another user renamed or moved "{intent.name}" while it was published, and there may be '
        "a second data source of that name now"
    )
    return Distrust(Doubt.OTHERS, detail)


def _lacks_revisions(intent: Intent, remote: RemoteDatasource) -> bool:
    return intent.before_revision is None or remote.revision is None


def _has_moved(intent: Intent, remote: RemoteDatasource) -> bool:
    """Whether the data source has changed as the request would change it."""
    before, after = intent.before_revision, remote.revision
    # Every publish makes a revision. An update makes no revision on some sites.
    if intent.mode and before is not None:
        if after is None:
            # This user may no longer see revisions, and another user may have changed the time
            # stamp.
            return False
        # If there is only one new revision, by another user, our own publish may still be queued.
        is_theirs = after == before + 1 and remote.publisher_id not in (None, intent.user)
        return after > before and not is_theirs
    stamp = (intent.before, before) if intent.before else None
    change = Change.since(stamp, remote, late=intent.late)
    return change.unexplained is not None

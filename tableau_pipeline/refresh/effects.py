"""Find out from a data source whether a request took effect, if its job is hidden or gone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.drift import Change, RemoteDatasource, Stamp
from tableau_pipeline.core.journal import Intent
from tableau_pipeline.outcome import Distrust, Doubt
from tableau_pipeline.publishing.site import TableauSite

# The largest difference between the server's times of a request and of its result.
SLACK = timedelta(seconds=2)

# How contents compare. "equal": all values are equal. "counts": the numbers of rows are equal, and
# the values were not compared. None: nothing could be compared.
Likeness = Literal["equal", "counts", "differs"] | None


@dataclass(frozen=True, slots=True)
class Effect:
    """A request that took effect.

    Attributes:
        remote: the data source with the effect.
        is_proved: whether the values were found equal to the values that were sent.
    """

    remote: RemoteDatasource
    is_proved: bool


@dataclass(frozen=True, slots=True)
class Effects:
    """Looks for the effects of requests in data sources.

    A missing effect does not show that a request has failed: it may still be queued.

    Args:
        likeness: compares what a data source holds with a checkpoint.
    """

    server: TableauSite
    likeness: Callable[[Checkpoint, RemoteDatasource], Likeness]
    _compared: dict[Stamp, Likeness] = field(default_factory=dict)

    def of(self, intent: Intent, *, is_over: bool) -> Effect | None:
        """Return the effect of a request; None if the data source does not show it yet.

        Args:
            is_over: whether the job has ended, so that an effect must show by now.
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
            # The publish took effect between the requests for the time stamp and the revision.
            remote = self.server.find_by_luid(intent.luid)
        if remote is None or not (is_over or _has_moved(intent, remote)):
            return None
        if intent.target is None:
            return Effect(remote, False) if _has_moved(intent, remote) else None
        # Another user may have moved the stamp, so the contents decide, if they can be compared.
        if remote.stamp not in self._compared:
            self._compared[remote.stamp] = self.likeness(intent.target, remote)
        match self._compared[remote.stamp]:
            case "equal" if intent.mode is None or _has_moved(intent, remote):
                return Effect(remote, True)
            case "counts" | None if _has_moved(intent, remote):
                return Effect(remote, False)
        return None

    @property
    def is_refuted(self) -> bool:
        """Whether the data source was last seen with other contents than those of the request."""
        return [*self._compared.values()][-1:] == ["differs"]


def misdirected(intent: Intent, remote: RemoteDatasource) -> Distrust | None:
    """Return why a publish may have missed its data source, which servers find by its name."""
    is_named = (remote.name, remote.project_id) == (intent.name, intent.project_id)
    if intent.mode is None or intent.luid is None or is_named:
        return None
    detail = (
        f'another user renamed or moved "{intent.name}" while it was published, and there may be '
        "a second data source of that name now"
    )
    return Distrust(Doubt.OTHERS, detail)


def _has_moved(intent: Intent, remote: RemoteDatasource) -> bool:
    """Whether the data source has changed in the way in which the request would change it."""
    before, after = intent.before_revision, remote.revision
    # Every publish makes a revision. On some sites, an update makes none.
    if intent.mode and before is not None:
        if after is None:
            # This user may no longer see revisions, and the time stamp may be another user's.
            return False
        # A single new revision by another user is not ours; our own may still be queued.
        is_theirs = after == before + 1 and remote.publisher_id not in (None, intent.user)
        return after > before and not is_theirs
    stamp = (intent.before, before) if intent.before else None
    change = Change.since(stamp, remote, late=intent.late)
    return change.unexplained is not None

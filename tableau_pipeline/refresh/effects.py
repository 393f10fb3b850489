"""Find out from a data source whether a request took effect, where its job cannot be asked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.drift import RemoteDatasource, Stamp
from tableau_pipeline.core.journal import Intent
from tableau_pipeline.publishing.site import TableauSite

# The largest difference between the times that a server gives to a request and to its result.
SLACK = timedelta(seconds=2)

# How contents compare: all values are equal, or the numbers of rows are; None if nobody can tell.
Likeness = Literal["equal", "counts", "differs"] | None


@dataclass(frozen=True, slots=True)
class Effect:
    """A request that took effect.

    Attributes:
        remote: the data source since then.
        is_proved: its values were compared with those that were sent.
    """

    remote: RemoteDatasource
    is_proved: bool


@dataclass(frozen=True, slots=True)
class Effects:
    """Looks at data sources.

    Nothing here tells that a request has failed: it may still wait in the queue of the server.

    Args:
        likeness: compares what a data source holds with a checkpoint.
    """

    server: TableauSite
    likeness: Callable[[Checkpoint, RemoteDatasource], Likeness]
    _compared: dict[Stamp, Likeness] = field(default_factory=dict)

    def of(self, intent: Intent, *, is_over: bool) -> Effect | None:
        """Return what shows that a request took effect; None if nothing does yet.

        Args:
            is_over: the job has ended, so that an effect must show by now.
        """
        if intent.luid is None:
            found = self.server.find_by_name(intent.name, project_id=intent.project_id)
            is_ours = found and found.owner_id == self.server.user_id
            earliest = intent.recorded_at.replace(microsecond=0) - SLACK
            return Effect(found, False) if is_ours and found.created_at >= earliest else None
        remote = self.server.find_by_luid(intent.luid)
        if remote is None or not (is_over or _has_moved(intent, remote)):
            return None
        if intent.target is None:
            return Effect(remote, False) if _has_moved(intent, remote) else None
        # Another user may have moved the stamp, so the contents decide, if they can be had.
        if remote.stamp not in self._compared:
            self._compared[remote.stamp] = self.likeness(intent.target, remote)
        match self._compared[remote.stamp]:
            case "equal" if intent.mode is None or _has_moved(intent, remote):
                return Effect(remote, True)
            case "counts" | None if _has_moved(intent, remote):
                return Effect(remote, False)
        return None


def _has_moved(intent: Intent, remote: RemoteDatasource) -> bool:
    """Whether the data source shows a change since the request that only such a request makes."""
    before, after = intent.before_revision, remote.revision
    # Every publish makes a revision. Not every site has one for an update.
    if intent.mode and before is not None and after is not None:
        return after > before
    return remote.stamp != (intent.before, before)

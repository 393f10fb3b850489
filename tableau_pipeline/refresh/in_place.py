"""Change tags, name, project and owner of a data source: changes that take effect without a job.

After each change, we read the data source again. So later refreshes do not mistake our change for
another user's change, and we notice if another user has changed the data source at the same time.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tableau_pipeline.core.checkpoint import Window
from tableau_pipeline.core.drift import Change, RemoteDatasource, is_unchanged
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.errors import DriftError, RefreshError
from tableau_pipeline.outcome import Distrust, Doubt
from tableau_pipeline.publishing.properties import set_properties
from tableau_pipeline.publishing.site import TableauSite


@dataclass(frozen=True, slots=True)
class InPlace:
    """Changes a data source in place, and detects changes by other users.

    Attributes:
        late: when our earlier updates took effect, for updates that have not changed the time stamp
            of the data source yet. Some sites change the time stamp only later.
        done: sentences about changes that took effect. Each rename, move, change of tags or change
            of the owner adds a sentence.
    """

    server: TableauSite
    late: Collection[Window]
    done: list[str]

    def tag(
        self, remote: RemoteDatasource, tags: frozenset[str]
    ) -> tuple[RemoteDatasource, Distrust | None]:
        """Tag a data source as ours, and remove the tags of other deployments and keys.

        Returns:
            The data source, and why another user may have changed it in the meantime; None if only
            we changed it.
        """
        prefixes = (TAG_PREFIX, INSTANCE_TAG_PREFIX)
        others = {tag for tag in remote.tags - tags if tag.startswith(prefixes)}
        if tags <= remote.tags and not others:
            return remote, None
        began = self.server.now()
        # Remove the tags of others: otherwise, our next refresh would ask again whether to take
        # over.
        if others:
            self.server.untag(remote.luid, others)
            self.done.append(f'"{remote.name}" lost its tags of other deployments or keys')
        self.server.tag(remote.luid, tags)
        if not tags <= remote.tags:
            self.done.append(f'"{remote.name}" was tagged')
        return self.changed_since(remote, began)

    def move(self, remote: RemoteDatasource, *, name: str, project_id: str) -> RemoteDatasource:
        """Give a data source this name and project.

        Raises:
            RefusedError: the name is taken in the project, or our user lacks permission.
            DriftError: another user changed the data source in the meantime.
        """
        # Check for changes by other users first, because the server does not check this.
        if not is_unchanged(remote, look_up(self.server, remote.luid), late=self.late):
            raise DriftError(f'"{remote.name}" was changed before it could be renamed or moved.')
        began = self.server.now()
        self.server.move(remote.luid, name=name, project_id=project_id)
        renamed = [f'renamed to "{name}"'] * (name != remote.name)
        moved = ["moved to another project"] * (project_id != remote.project_id)
        self.done.append(f'"{remote.name}" was {" and ".join(renamed + moved)}')
        remote, distrust = self.changed_since(remote, began)
        if distrust:
            raise DriftError(f'"{name}" was renamed or moved, and {distrust}.')
        return remote

    def change_owner(
        self, remote: RemoteDatasource, owner: str
    ) -> tuple[RemoteDatasource, Distrust | None]:
        """Give a data source to the owner with this LUID; return the result of `changed_since`.

        Raises:
            RefreshError: the owner could not be changed.
        """
        began = self.server.now()
        set_properties(self.server, remote.luid, owner=owner)
        self.done.append(f'"{remote.name}" got another owner')
        try:
            return self.changed_since(remote, began)
        except RefreshError as error:
            reason = f"it could not be read after its owner was changed: {error}"
            return replace(remote, owner_id=owner), Distrust(Doubt.NOT_SEEN, reason)

    def seen_since(self, remote: RemoteDatasource) -> tuple[RemoteDatasource, Distrust | None]:
        """Return the data source now, and why another user may have changed it since `remote`."""
        now = look_up(self.server, remote.luid)
        return now, Change.since(remote.stamp, now, late=self.late).unexplained

    def changed_since(
        self, remote: RemoteDatasource, began: datetime, *, changes: int = 1
    ) -> tuple[RemoteDatasource, Distrust | None]:
        """Return the data source after our changes, and why another user may have changed it.

        Args:
            began: the time of the server before our first change.
            changes: the number of our changes.
        """
        changed = look_up(self.server, remote.luid)
        # The server's time stamps have whole seconds, and each change may be rounded up by a
        # second.
        end = max(self.server.now(), remote.updated_at) + timedelta(seconds=changes)
        # Our changes in place make no revisions. If there is a new revision, another user made it.
        change = Change(
            Window(began, end),
            remote.stamp,
            changed.stamp,
            revisions=(0,),
            late=self.late,
            published=changed.published,
        )
        return changed, change.unexplained


def require_found(remote: RemoteDatasource | None, what: str) -> RemoteDatasource:
    """Return a data source that was found by its name or LUID.

    Raises:
        RefreshError: the data source was removed from the server in the meantime.
    """
    if remote is None:
        raise RefreshError(
            f"{what} was removed from the server during the refresh. The next run publishes it "
            "again."
        )
    return remote


def look_up(server: TableauSite, luid: str) -> RemoteDatasource:
    """Return the data source with this LUID; raise the same errors as `require_found`."""
    return require_found(server.find_by_luid(luid), f"Data source {luid}")

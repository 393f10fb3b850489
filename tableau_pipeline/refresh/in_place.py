"""Changes that take effect at once, without a job: tags, name and project, owner.

After each change, we look at the data source. So later refreshes do not mistake our own change for
drift, and we notice a change by another user meanwhile.
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
    """Changes a data source in place, and distinguishes our changes from those of other users.

    Attributes:
        late: the windows of our updates whose time stamps may come only now.
    """

    server: TableauSite
    late: Collection[Window]

    def tag(
        self, remote: RemoteDatasource, tags: frozenset[str]
    ) -> tuple[RemoteDatasource, Distrust | None]:
        """Tag a data source as ours, and remove the tags of other deployments and keys.

        Returns:
            The data source, and why another user may have changed it meanwhile; None if no
            user has.
        """
        prefixes = (TAG_PREFIX, INSTANCE_TAG_PREFIX)
        others = {tag for tag in remote.tags - tags if tag.startswith(prefixes)}
        if tags <= remote.tags and not others:
            return remote, None
        began = self.server.now()
        # Remove other tags, or our next refresh would ask again whether to take over.
        if others:
            self.server.untag(remote.luid, others)
        self.server.tag(remote.luid, tags)
        return self.changed_since(remote, began)

    def move(self, remote: RemoteDatasource, *, name: str, project_id: str) -> RemoteDatasource:
        """Rename a data source, or move it to another project.

        Raises:
            RefusedError: the name is taken in that project, or the user lacks permission.
            DriftError: another user changed the data source meanwhile.
        """
        # The server does not compare before it moves, so check for changes by other users first.
        if not is_unchanged(remote, look_up(self.server, remote.luid), late=self.late):
            raise DriftError(f'"{remote.name}" was changed before it could be renamed or moved.')
        began = self.server.now()
        self.server.move(remote.luid, name=name, project_id=project_id)
        remote, distrust = self.changed_since(remote, began)
        if distrust:
            raise DriftError(f'"{name}" was renamed or moved, and {distrust}.')
        return remote

    def change_owner(
        self, remote: RemoteDatasource, owner: str
    ) -> tuple[RemoteDatasource, Distrust | None]:
        """Give a data source to the owner with this LUID; return what `changed_since` returns.

        Raises:
            RefreshError: the owner could not be changed.
        """
        began = self.server.now()
        set_properties(self.server, remote.luid, owner=owner)
        try:
            return self.changed_since(remote, began)
        except RefreshError as error:
            reason = f"it could not be read after its owner was changed: {error}"
            return replace(remote, owner_id=owner), Distrust(Doubt.NOT_SEEN, reason)

    def changed_since(
        self, remote: RemoteDatasource, began: datetime, *, changes: int = 1
    ) -> tuple[RemoteDatasource, Distrust | None]:
        """Return the data source after our changes, and why another user may have changed it.

        Args:
            began: the time of the server when our changes began.
            changes: the number of our changes.
        """
        changed = look_up(self.server, remote.luid)
        # The server's time stamps have whole seconds, and each change may be rounded up to a new
        # one.
        end = max(self.server.now(), remote.updated_at) + timedelta(seconds=changes)
        # Our changes make no revision, so another user made any new revision.
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
        RefreshError: it was removed from the server meanwhile.
    """
    if remote is None:
        raise RefreshError(
            f"{what} was removed from the server during the refresh. The next run publishes it "
            "again."
        )
    return remote


def look_up(server: TableauSite, luid: str) -> RemoteDatasource:
    """Return the data source with this LUID; raise what `require_found` raises."""
    return require_found(server.find_by_luid(luid), f"Data source {luid}")

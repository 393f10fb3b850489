"""Find a data source on the server, and change its tags, its name and its project."""

from datetime import datetime, timedelta

from tableau_pipeline.core.checkpoint import Habits, Intent
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.core.server import RemoteDatasource, Server
from tableau_pipeline.errors import DriftError, RefreshError
from tableau_pipeline.refresh.recover.window import Change, Window


def tag(
    server: Server, remote: RemoteDatasource, tags: frozenset[str]
) -> tuple[RemoteDatasource, str | None]:
    """Tag a data source as ours, and remove the tags of other deployments and keys.

    Returns:
        The data source, and why somebody else may have changed it meanwhile; None if nobody
        has.
    """
    prefixes = (TAG_PREFIX, INSTANCE_TAG_PREFIX)
    others = {tag for tag in remote.tags - tags if tag.startswith(prefixes)}
    if tags <= remote.tags and not others:
        return remote, None
    began = server.now()
    # A takeover has to last: their tag would make our next refresh stop and ask again.
    if others:
        server.untag(remote.luid, others)
    server.tag(remote.luid, tags)
    return _changed(server, remote, began)


def move(
    server: Server, remote: RemoteDatasource, *, name: str, project_id: str
) -> RemoteDatasource:
    """Rename a data source, or move it to another project.

    Raises:
        RefusedError: the name is taken there, or the user lacks permission.
        DriftError: somebody changed the data source meanwhile.
    """
    # The server moves it without asking, so a change by somebody else must be noticed before.
    if place(found(server, remote.luid)) != place(remote):
        raise DriftError(f'"{remote.name}" was changed before it could be renamed or moved.')
    began = server.now()
    server.move(remote.luid, name=name, project_id=project_id)
    remote, doubt = _changed(server, remote, began)
    if doubt:
        raise DriftError(f'"{name}" was renamed or moved, and {doubt}.')
    return remote


def _changed(
    server: Server, remote: RemoteDatasource, began: datetime
) -> tuple[RemoteDatasource, str | None]:
    """The data source after a change that began at that time, and what may be others' work."""
    now = found(server, remote.luid)
    # The server's time stamps have whole seconds, and may be rounded up.
    window = Window(began, server.now() + timedelta(seconds=1))
    # Tags, a name or a project make no revision, so a new one is somebody else's.
    change = Change(window, remote.stamp, now.stamp, revisions=(0,))
    return now, change.unexplained(Habits())


def located(server: Server, intent: Intent) -> RemoteDatasource:
    """The data source of a request that has taken effect.

    Raises:
        RefreshError: the data source was removed since.
    """
    if intent.luid:
        return found(server, intent.luid)
    remote = server.find_by_name(intent.name, project_id=intent.project_id)
    if remote is None:
        raise RefreshError(
            f'"{intent.name}" was published, but no longer exists. The next run publishes it again.'
        )
    return remote


def found(server: Server, luid: str) -> RemoteDatasource:
    """The data source with this LUID.

    Raises:
        RefreshError: the data source was removed from the server meanwhile.
    """
    remote = server.find_by_luid(luid)
    if remote is None:
        raise RefreshError(
            f"Data source {luid} was removed from the server during the refresh. The next run "
            "publishes it again."
        )
    return remote


def place(remote: RemoteDatasource) -> tuple[object, ...]:
    """The values that show whether somebody changed, renamed or moved a data source."""
    return remote.luid, remote.name, remote.project_id, remote.stamp

"""Changes that take effect at once, without a job: tags, name and project, owner.

After each of them, the data source is looked at: what it shows is no drift later on, and what
another user has done meanwhile is.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from tableau_pipeline.core.drift import Change, RemoteDatasource, Window
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.errors import DriftError, RefreshError
from tableau_pipeline.outcome import Distrust, Doubt
from tableau_pipeline.publishing.properties import describe
from tableau_pipeline.publishing.site import TableauSite


def tag(
    server: TableauSite, remote: RemoteDatasource, tags: frozenset[str]
) -> tuple[RemoteDatasource, Distrust | None]:
    """Tag a data source as ours, and remove the tags of other deployments and keys.

    Returns:
        The data source, and why another user may have changed it meanwhile; None if none
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
    return changed_since(server, remote, began)


def move(
    server: TableauSite, remote: RemoteDatasource, *, name: str, project_id: str
) -> RemoteDatasource:
    """Rename a data source, or move it to another project.

    Raises:
        RefusedError: the name is taken there, or the user lacks permission.
        DriftError: another user changed the data source meanwhile.
    """
    # The server moves it without asking, so a change by another user must be noticed before.
    if look_up(server, remote.luid).state != remote.state:
        raise DriftError(f'"{remote.name}" was changed before it could be renamed or moved.')
    began = server.now()
    server.move(remote.luid, name=name, project_id=project_id)
    remote, distrust = changed_since(server, remote, began)
    if distrust:
        raise DriftError(f'"{name}" was renamed or moved, and {distrust}.')
    return remote


def give_to(
    server: TableauSite, remote: RemoteDatasource, owner: str
) -> tuple[RemoteDatasource, Distrust | None]:
    """Give a data source to this owner, a LUID; return what `changed_since` does.

    Raises:
        RefreshError: it stays with its present owner.
    """
    began = server.now()
    describe(server, remote.luid, owner=owner)
    try:
        return changed_since(server, remote, began)
    except RefreshError as error:
        why = f"what it shows since its owner has it back is not known: {error}"
        return replace(remote, owner_id=owner), Distrust(Doubt.NOT_SEEN, why)


def changed_since(
    server: TableauSite, remote: RemoteDatasource, began: datetime, *, changes: int = 1
) -> tuple[RemoteDatasource, Distrust | None]:
    """The data source after changes that began at that time, and what may be a user's work."""
    now = look_up(server, remote.luid)
    # The server's time stamps have whole seconds, and may be rounded up, each to another one.
    window = Window(began, max(server.now(), remote.updated_at) + timedelta(seconds=changes))
    # Tags, a name or a project make no revision, so a new one is another user's.
    change = Change(window, remote.stamp, now.stamp, revisions=(0,), published=now.published)
    return now, change.unexplained


def there(remote: RemoteDatasource | None, what: str) -> RemoteDatasource:
    """Return a data source that was looked for by its name or LUID.

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
    """The data source with this LUID; it raises what `there` does."""
    return there(server.find_by_luid(luid), f"Data source {luid}")

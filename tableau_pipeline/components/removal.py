"""Take away what this instance has published in an environment."""

from collections.abc import Iterator, Set

import dagster as dg

from tableau_pipeline.components.journal import DagsterJournal, newest_records
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, root_of
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.keys import guess
from tableau_pipeline.publishing import inventory
from tableau_pipeline.publishing.site import TableauSite


def published_below(
    instance: dg.DagsterInstance, site: TableauSite, root: str
) -> Iterator[tuple[str, RemoteDatasource]]:
    """Yield what this instance has published in this environment, with its key."""
    ours = DagsterJournal(instance, "", root=root).instance
    for remote in site.tagged(f"{INSTANCE_TAG_PREFIX}{ours}", revisions=False):
        key, *others = remote.keys or ("",)
        # A data source that another deployment has taken over has other tags.
        if ours in remote.instances and key and not others and root_of(key) == root:
            yield key, remote


def nothing_below(instance: dg.DagsterInstance, site: TableauSite, root: str) -> str:
    """Return why nothing is found in an environment, as a sentence.

    Raises:
        RefusedError: there is no such project, so the root may be mistyped.
    """
    known = sorted({root_of(key) for key in newest_records(instance)} - {""})
    meant = guess(root, known)
    below = f'This Dagster instance has published nothing below "{root}"' + (
        f": {meant}" if meant else ". "
    )
    listed = f"It has below {', '.join(known)}" if known else "It has below no project root at all"
    if site.find_project(root) is None:
        raise RefusedError(f'There is no project "{root}" on the site. {below}{listed}')
    return f"{below}{listed}"


def projects_below(site: TableauSite, root: str) -> Set[str]:
    """Return the ids of an environment's project and of all projects in it."""
    top = site.find_project(root)
    return {luid for luid, each in inventory.projects(site).items() if top in each.luids}


def delete(
    instance: dg.DagsterInstance,
    site: TableauSite,
    key: str,
    remote: RemoteDatasource,
    *,
    projects: Set[str],
) -> str:
    """Delete a data source of an environment; return why it is left, "" if it is gone.

    Its tags do not suffice: people move data sources, and copy tags.

    Args:
        projects: those of the environment.
    """
    name, _, root = key.partition("@")
    journal = DagsterJournal(instance, name, root=root)
    history = read_history(journal.records())
    running = [e.owner.run_id for e in history.open_claims if not journal.has_ended(e.owner)]
    if running:
        return f"run {running[0]} is refreshing it: terminate that run first"
    if remote.project_id not in projects:
        return f'somebody has moved it out of "{root}": delete it by hand if nobody needs it there'
    if remote.luid not in {history.recovered.luid, *(each.luid for each in history.intents)}:
        return "it has our tags, but no record of this instance names it: delete it by hand"
    try:
        site.delete(remote.luid)
    except RefreshError as error:
        return str(error)
    return ""

"""Take away what this instance has published in an environment."""

from collections.abc import Iterator

import dagster as dg

from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, root_of
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.errors import RefreshError
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


def delete(instance: dg.DagsterInstance, site: TableauSite, key: str, luid: str) -> str:
    """Delete a data source, unless a run refreshes it; return why it is left, "" if it is gone."""
    name, _, root = key.partition("@")
    journal = DagsterJournal(instance, name, root=root)
    claims = read_history(journal.records()).open_claims
    running = [each.owner.run_id for each in claims if not journal.has_ended(each.owner)]
    if running:
        return f"run {running[0]} is refreshing it: terminate that run first"
    try:
        site.delete(luid)
    except RefreshError as error:
        return str(error)
    return ""

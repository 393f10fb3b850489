"""Take away what this instance has published in an environment."""

import logging
import time
from collections.abc import Iterator, Sequence, Set

import dagster as dg

from tableau_pipeline.components.journal import DagsterJournal, newest_records
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, root_of
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing import inventory
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import claimed, live_claims
from tableau_pipeline.yaml_keys import guess

# Seconds in which a refresh that began at the same moment withdraws.
_PATIENCE = 10.0


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
        raise RefusedError(
            f'There is no project "{root}" on the site. {below}{listed}', code=Code.NOT_ON_SITE
        )
    return f"{below}{listed}"


def projects_below(site: TableauSite, root: str) -> Set[str]:
    """Return the ids of an environment's project and of all projects in it."""
    top = site.find_project(root)
    return {luid for luid, each in inventory.projects(site).items() if top in each.luids}


def delete(
    instance: dg.DagsterInstance,
    site: TableauSite,
    found: Sequence[tuple[str, RemoteDatasource]],
    *,
    log: logging.Logger,
) -> list[str]:
    """Delete data sources of an environment, in a run, as only runs claim them.

    Args:
        found: with their keys, as `published_below` yields them.
        log: gets what the run logs.

    Returns:
        For each, why it is left; "" if it is gone.
    """
    if not found:
        return []
    left: list[str] = []
    projects = projects_below(site, root_of(found[0][0]))

    @dg.op
    def remove(context: dg.OpExecutionContext) -> None:
        left.extend(_delete(context, site, key, remote, projects) for key, remote in found)

    logger = dg.LoggerDefinition(lambda _: log)
    graph = dg.GraphDefinition("tableau_remove", node_defs=[remove])
    job = graph.to_job(logger_defs={"command_line": logger})
    job.execute_in_process(
        instance=instance, run_config={"loggers": {"command_line": {"config": {}}}}
    )
    return left


def _delete(
    context: dg.OpExecutionContext,
    site: TableauSite,
    key: str,
    remote: RemoteDatasource,
    projects: Set[str],
) -> str:
    """Delete one; return why it is left, "" if it is gone.

    Its tags do not suffice: people move data sources, and copy tags.
    """
    name, _, root = key.partition("@")
    journal = DagsterJournal(context.instance, name, context, root=root)
    running = live_claims(read_history(journal.records()).open_claims, journal)
    if running:
        return f"run {running[0].owner.run_id} is refreshing it: terminate that run first"
    alone = claimed(journal, what=key, timeout=_PATIENCE, sleep=time.sleep, log=context.log)
    try:
        with alone as claim:
            history = claim.history
            ours = {history.recovered.luid, *(each.luid for each in history.intents)}
            if remote.project_id not in projects:
                return (
                    f'somebody has moved it out of "{root}": delete it by hand if nobody needs it'
                )
            if remote.luid not in ours:
                return "it has our tags, but no record of this instance names it: delete it by hand"
            claim.check_fence()
            site.delete(remote.luid)
    except RefreshError as error:
        return str(error)
    return ""

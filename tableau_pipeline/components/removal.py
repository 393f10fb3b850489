"""Delete the data sources that this deployment has published in an environment."""

import logging
import time
from collections.abc import Iterator, Sequence, Set

import dagster as dg

from tableau_pipeline.components.journal import journal_of, journal_place
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, root_of
from tableau_pipeline.core.journal import Recovered
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing import inventory
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import claimed, live_claim, name_of
from tableau_pipeline.yaml_keys import guess

# Seconds to wait for a refresh that begins at the same moment.
_PATIENCE = 10.0


def published_below(
    instance: dg.DagsterInstance, site: TableauSite, root: str
) -> Iterator[tuple[str, RemoteDatasource]]:
    """Yield all data sources of this deployment below a project root, each with its key."""
    ours = journal_of(instance, "", root=root).instance
    for remote in site.tagged(f"{INSTANCE_TAG_PREFIX}{ours}", revisions=False):
        key, *others = remote.keys or ("",)
        # Skip a data source whose tag only begins like ours, because its root has a longer name.
        # Also skip a data source with several keys: users may have copied tags to it.
        if ours in remote.instances and key and not others and root_of(key) == root:
            yield key, remote


def nothing_below(instance: dg.DagsterInstance, site: TableauSite, root: str) -> str:
    """Return an explanation, for users, of why an environment has no data sources.

    Raises:
        RefusedError: the project does not exist, so the root may be mistyped.
    """
    roots = sorted({root_of(key) for key in journal_place().recorded_keys()} - {""})
    suggestion = guess(root, roots)
    below = f'This deployment has published nothing below "{root}"' + (
        f": {suggestion}" if suggestion else ". "
    )
    listed = f"It has published below {', '.join(roots) or 'no project root'}"
    if site.find_project(root) is None:
        raise RefusedError(
            f'There is no project "{root}" on the site. {below}{listed}', code=Code.NOT_ON_SITE
        )
    return f"{below}{listed}"


def projects_below(site: TableauSite, root: str) -> Set[str]:
    """Return the LUIDs of an environment's project and of all projects below it."""
    top = site.find_project(root)
    return {luid for luid, project in inventory.projects(site).items() if top in project.luids}


def delete(
    instance: dg.DagsterInstance,
    site: TableauSite,
    found: Sequence[tuple[str, RemoteDatasource]],
    *,
    log: logging.Logger,
) -> list[str]:
    """Delete data sources of an environment.

    The deletion is a step of a Dagster run, so that a refresh that waits can find out whether the
    deletion has ended.

    Args:
        found: the data sources with their keys, as `published_below` yields them.
        log: receives the log of the run.

    Returns:
        For each data source, the reason why it was not deleted; "" if it was deleted.
    """
    if not found:
        return []
    reasons: list[str] = []
    projects = projects_below(site, root_of(found[0][0]))

    @dg.op
    def remove(context: dg.OpExecutionContext) -> None:
        reasons.extend(_delete(context, site, key, remote, projects) for key, remote in found)

    logger = dg.LoggerDefinition(lambda _: log)
    graph = dg.GraphDefinition("tableau_remove", node_defs=[remove])
    job = graph.to_job(logger_defs={"command_line": logger})
    job.execute_in_process(
        instance=instance, run_config={"loggers": {"command_line": {"config": {}}}}
    )
    return reasons


def _delete(
    context: dg.OpExecutionContext,
    site: TableauSite,
    key: str,
    remote: RemoteDatasource,
    projects: Set[str],
) -> str:
    """Delete a data source. Return the reason if it was not deleted; otherwise "".

    Tags alone do not prove that the data source is ours, because users move data sources and copy
    tags. So also check the project and the records.
    """
    name, _, root = key.partition("@")
    journal = journal_of(context.instance, name, context, root=root)
    if other := live_claim(journal.history(), journal):
        return f"{name_of(other)} is refreshing it: end that refresh first"
    claiming = claimed(journal, what=key, timeout=_PATIENCE, sleep=time.sleep, log=context.log)
    try:
        with claiming as claim:
            history = claim.history
            luids = {history.recovered.luid, *(intent.luid for intent in history.intents)}
            if remote.project_id not in projects:
                return (
                    f'a user has moved it out of "{root}": if it is not needed, delete it by hand, '
                    "where it is now"
                )
            if remote.luid not in luids:
                return (
                    "it has our tags, but no record of this deployment names it: delete it by hand"
                )
            claim.check_fence()
            site.delete(remote.luid)
            # Record that nothing is published any more. Otherwise, snapshots would be kept for
            # later updates.
            claim.append(Recovered(refresh=claim.number))
    except RefreshError as error:
        return str(error)
    return ""

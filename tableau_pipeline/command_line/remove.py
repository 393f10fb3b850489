"""The command `remove`: take away what an environment has published."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click
import dagster as dg

from tableau_pipeline.command_line.output import Output, signed
from tableau_pipeline.command_line.project import opened
from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.core.project_root import root_from, root_of
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.site import TableauSite


@click.command()
@click.option("--project-root", metavar="PATH", required=True, help="As TABLEAU_PROJECT_ROOT was.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.pass_obj
def remove(module: str | None, *, project_root: str, yes: bool, as_json: bool) -> int:
    """Delete the data sources that this Dagster instance has published below a project.

    It deletes only what has the tags of this instance and project: not what people published
    there. Projects stay.

    Exit code: 0 all of them are gone, 1 some are not.
    """
    output, root = Output(as_json=as_json), root_from(project_root)
    if not root:
        raise click.UsageError("--project-root is empty: production is not removed as a whole")
    with (
        opened(module) as project,
        project.resources() as resources,
        resources.tableau.session() as site,
    ):
        found = [*_published(project.instance, site, root)]
        for key, remote in found:
            output.progress(f'{key}: "{remote.name}", {remote.link or remote.luid}')
        if found and not yes:
            click.confirm(f"Delete {len(found)} of them?", abort=True, err=True)
        removed = [_removed(project.instance, site, key, remote) for key, remote in found]
    left = [each for each in removed if each.problem]
    output.result(
        {"datasources": [asdict(each) for each in removed]},
        *(signed("x", f"{each.name}: {each.problem}") for each in left),
        signed("-", f"{len(removed) - len(left)} deleted, {len(left)} left"),
    )
    return 1 if left else 0


@dataclass(frozen=True, slots=True)
class Removed:
    """A data source that was deleted, unless there was a problem."""

    key: str
    name: str
    luid: str
    problem: str = ""


def _published(
    instance: dg.DagsterInstance, site: TableauSite, root: str
) -> Iterator[tuple[str, RemoteDatasource]]:
    """Yield what this instance has published in this environment, with its key."""
    ours = f"{INSTANCE_TAG_PREFIX}{DagsterJournal(instance, '', root=root).instance}"
    for remote in site.tagged(ours, revisions=False):
        keys = [tag.removeprefix(TAG_PREFIX) for tag in remote.tags if tag.startswith(TAG_PREFIX)]
        # A data source that another deployment has taken over has other tags.
        if ours in remote.tags and len(keys) == 1 and root_of(keys[0]) == root:
            yield keys[0], remote


def _removed(
    instance: dg.DagsterInstance, site: TableauSite, key: str, remote: RemoteDatasource
) -> Removed:
    name, _, root = key.partition("@")
    journal = DagsterJournal(instance, name, root=root)
    claims = read_history(journal.records()).open_claims
    running = [each.owner.run_id for each in claims if not journal.has_ended(each.owner)]
    problem = f"run {running[0]} is refreshing it: terminate that run first" if running else ""
    try:
        if not problem:
            site.delete(remote.luid)
    except RefreshError as error:
        problem = str(error)
    return Removed(key, remote.name, remote.luid, problem)

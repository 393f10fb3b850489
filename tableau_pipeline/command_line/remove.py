"""The command `remove`: delete the data sources that an environment has published."""

import click

from tableau_pipeline.command_line.output import Output, reports, signed
from tableau_pipeline.command_line.project import open_project
from tableau_pipeline.components.removal import delete, nothing_below, published_below
from tableau_pipeline.core.identity import root_from


@click.command()
@click.option(
    "--project-root", metavar="PATH", required=True, help="The former TABLEAU_PROJECT_ROOT."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@reports
def remove(module: str | None, *, project_root: str, yes: bool, output: Output) -> int:
    """Delete the data sources that this deployment has published below a project.

    The command deletes a data source only if a record of this deployment names it, and if it is
    still below the project. The command keeps all projects, and all data sources that users have
    published there.

    Exit code: 0 all of these data sources are gone, 1 some of them are left, or the project does
    not exist.
    """
    root = root_from(project_root)
    if not root:
        raise click.UsageError("--project-root is empty: production cannot be removed as a whole")
    with (
        open_project(module) as project,
        project.resources() as resources,
        resources.tableau.session(output.waits()) as site,
    ):
        published = [*published_below(project.instance, site, root)]
        if not published:
            output.progress(nothing_below(project.instance, site, root))
        for key, remote in published:
            output.progress(f'{key}: "{remote.name}", {remote.link or remote.luid}')
        if published and not yes:
            click.confirm(f"Delete {len(published)} of them?", abort=True, err=True)
        problems = delete(project.instance, site, published, log=output.waits())
        datasources = [
            {"key": key, "name": remote.name, "luid": remote.luid, "problem": problem}
            for (key, remote), problem in zip(published, problems, strict=True)
        ]
    remaining = [datasource for datasource in datasources if datasource["problem"]]
    output.result(
        {"datasources": datasources},
        *(
            signed("x", f"{datasource['name']}: {datasource['problem']}")
            for datasource in remaining
        ),
        signed("-", f"{len(datasources) - len(remaining)} deleted, {len(remaining)} left"),
    )
    return 1 if remaining else 0

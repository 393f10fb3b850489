"""The command `remove`: take away what an environment has published."""

import click

from tableau_pipeline.command_line import open_project
from tableau_pipeline.command_line.output import Output, reports, signed
from tableau_pipeline.components.removal import (
    delete,
    nothing_below,
    published_below,
)
from tableau_pipeline.core.identity import root_from


@click.command()
@click.option("--project-root", metavar="PATH", required=True, help="As TABLEAU_PROJECT_ROOT was.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@reports
def remove(module: str | None, *, project_root: str, yes: bool, output: Output) -> int:
    """Delete the data sources that this Dagster instance has published below a project.

    It deletes only what a record of this instance names, and what is still below that project: not
    what people published there. Projects stay.

    Exit code: 0 all of them are gone, 1 some are not, or there is no such project.
    """
    root = root_from(project_root)
    if not root:
        raise click.UsageError("--project-root is empty: production is not removed as a whole")
    with (
        open_project(module) as project,
        project.resources() as resources,
        resources.tableau.session(output.waits()) as site,
    ):
        found = [*published_below(project.instance, site, root)]
        if not found:
            output.progress(nothing_below(project.instance, site, root))
        for key, remote in found:
            output.progress(f'{key}: "{remote.name}", {remote.link or remote.luid}')
        if found and not yes:
            click.confirm(f"Delete {len(found)} of them?", abort=True, err=True)
        problems = delete(project.instance, site, found, log=output.waits())
        done = [
            {"key": key, "name": remote.name, "luid": remote.luid, "problem": problem}
            for (key, remote), problem in zip(found, problems, strict=True)
        ]
    left = [each for each in done if each["problem"]]
    output.result(
        {"datasources": done},
        *(signed("x", f"{each['name']}: {each['problem']}") for each in left),
        signed("-", f"{len(done) - len(left)} deleted, {len(left)} left"),
    )
    return 1 if left else 0

"""The command `deployment`: show whose records a data folder holds; settle a move or a copy."""

import click
from rich.text import Text

from tableau_pipeline.command_line.output import Output, reports
from tableau_pipeline.command_line.project import prepare
from tableau_pipeline.components.journal import journal_place


@click.command()
@click.option("--moved", is_flag=True, help="The data folder has moved: go on with its records.")
@click.option("--copied", is_flag=True, help="It is a copy: start a deployment without records.")
@reports
def deployment(module: str | None, *, moved: bool, copied: bool, output: Output) -> int:
    """Show the deployment whose records the data folder holds.

    Refreshes refuse a copied data folder until you run this with --moved or --copied. With --moved,
    the copy goes on with the history of the data sources, and nothing may use the other folder any
    more. With --copied, the copy becomes another deployment, which leaves the data sources of the
    first one alone.

    Exit code: 0 the data folder is in its place, 1 it is a copy of another one.
    """
    if moved and copied:
        raise click.UsageError("--moved and --copied exclude each other")
    prepare()
    place = journal_place()
    recorded = place.recorded()
    if recorded and moved:
        place.keep(recorded)
    if copied:
        place.make_new()
    recorded = place.recorded()
    problem = place.problem(recorded) if recorded else None
    shown = {
        "name": place.name,
        "place": place.where,
        "id": recorded.id if recorded else None,
        "keys": sorted(place.recorded_keys()) if recorded and not problem else [],
        "problem": problem,
    }
    count = len(shown["keys"])
    counted = f"{count} data source{'s' * (count != 1)}"
    output.result(
        shown,
        Text(f'Deployment "{place.name}" in {place.where}'),
        Text(f"{recorded.id}, {counted}" if recorded else "It has not published yet"),
        Text(problem) if problem else None,
    )
    return int(problem is not None)

"""The command `deployment`: show which deployment owns a data folder, also after a move or copy."""

import click
from rich.text import Text

from tableau_pipeline.command_line.output import Output, reports
from tableau_pipeline.command_line.project import prepare
from tableau_pipeline.components.journal import journal_place


@click.command()
@click.option("--moved", is_flag=True, help="The data folder has moved: continue its records.")
@click.option("--copied", is_flag=True, help="The folder is a copy: start a new deployment.")
@reports
def deployment(module: str | None, *, moved: bool, copied: bool, output: Output) -> int:
    """Show the deployment that owns the records in the data folder.

    Refreshes refuse a copied data folder until you run this command with --moved or --copied. With
    --moved, the copy continues the history of the data sources, and nothing may use the original
    folder again. With --copied, the copy becomes a new deployment without records. The new
    deployment does not change the data sources of the original deployment.

    Exit code: 0 the data folder is in its recorded place, 1 it is a copy or was moved.
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

"""The command `diff`: show how published rows differ from the rows of the models."""

from collections.abc import Iterator
from dataclasses import asdict

import click
from rich.console import RenderableType
from rich.text import Text

from tableau_pipeline.command_line.output import Output, columns, reports, signed
from tableau_pipeline.command_line.project import open_project
from tableau_pipeline.refresh.row_differences import Differences
from tableau_pipeline.refresh.row_differences import diff as compared
from tableau_pipeline.rendering import command


@click.command()
@click.argument("name")
@click.option(
    "--sample", type=click.IntRange(0), default=0, metavar="N", help="Rows to show per column."
)
@reports
def diff(module: str | None, name: str, *, sample: int, output: Output) -> int:
    """Compare the published rows of a data source with the rows of its models. Change nothing.

    Exit code: 0 the rows are equal, 1 the rows differ, 2 the rows could not be compared.
    """
    with open_project(module) as project:
        ((key, declared),) = project.named([name]).items()
        with (
            project.resources() as resources,
            resources.tableau.session(output.waits()) as site,
            output.bar() as bar,
        ):
            setup = project.setup(declared, resources)
            layout, differences = compared(setup, site, samples=sample, tell=bar)
    equal = not layout and all(table.is_equal for table in differences.values())
    tables = {
        title: asdict(table) | {"percent_equal": table.percent_equal}
        for title, table in differences.items()
    }
    output.result(
        {"key": key, "name": declared.name, "equal": equal, "layout": layout, "tables": tables},
        *(signed("~", phrase) for phrase in layout),
        *(line for title, table in differences.items() for line in _difference_lines(title, table)),
        Text(
            "It is equal."
            if equal
            else f"It differs. -> {command(key)}, with --full if that finds no change"
        ),
    )
    return int(not equal)


def _difference_lines(table: str, found: Differences) -> Iterator[RenderableType]:
    yield Text(f"{table}, by {', '.join(found.key) or 'whole rows'}")
    changed = {column: count for column, count in found.columns.items() if count}
    rows = (
        ("-", "only published", found.only_published),
        ("+", "only in the model", found.only_model),
        ("~", "in both, and differ", found.both - found.equal),
        ("=", "in both, and equal", found.equal),
    )
    yield columns(("", "ROWS", ">COUNT"), rows)
    if changed:
        cells = [
            ("~", column, f"{found.percent_equal[column]:.2f} %", count)
            for column, count in changed.items()
        ]
        yield columns(("", "COLUMN", ">EQUAL", ">DIFFER"), cells)
        yield Text(f"Other columns that are equal: {len(found.columns) - len(changed)}")
    for column, sample in found.samples.items():
        heads = (*found.key, f"{column} PUBLISHED", "IN THE MODEL")
        yield columns(heads, [[str(value) for value in row] for row in sample])

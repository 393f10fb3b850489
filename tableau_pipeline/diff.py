"""In what the published rows differ from those of the models, by key and by column."""

from collections.abc import Callable
from functools import partial

from tableauhyperapi import HyperException

from tableau_pipeline.core.declaration import Diff
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.affected import NotProvedError
from tableau_pipeline.extracts.compare import layout_changes, published_file
from tableau_pipeline.extracts.desired import table_source
from tableau_pipeline.extracts.differences import Differences, differences
from tableau_pipeline.hyper.hyper_file import table_columns
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.setup import Setup, newest_models


def diff(
    setup: Setup, server: TableauSite, *, samples: int, tell: Callable[..., None]
) -> tuple[list[str], dict[str, Differences]]:
    """Download a data source, and compare each of its tables with the newest version of its model.

    Args:
        samples: how many rows to show of each column that differs.
        tell: is told what is done, and its share if that is known.

    Returns:
        in what tables and columns differ, as phrases; and by table, how the rows differ, of the
        columns that both sides have.

    Raises:
        RefreshError: there is nothing to compare, or it cannot be read.
    """
    declaration, name = setup.declaration, setup.declaration.name
    record, rows = read_history(setup.journal.records()).checkpoint, {}
    remote = server.find_by_luid(record.luid) if record and record.luid else None
    if remote is None:
        why = "it is no longer on the server" if record else "no record shows that it was published"
        raise RefusedError(f"There is nothing of {name} to compare: {why}. Run its refresh")
    try:
        with newest_models(setup) as builder:
            desired = builder.desired(record)
            tell(f"Downloading {name}" + (f", {each} MB" if (each := remote.megabytes) else ""))
            with published_file(server, remote) as file:
                hyper = setup.hyper()
                for table in declaration.tables:
                    model = builder.models[table.model]
                    rows[table.name] = differences(
                        hyper,
                        file,
                        declaration.target(table.name),
                        table_source(table.name, model, desired[table.name].cutoff),
                        key=table.policy.key if isinstance(table.policy, Diff) else (),
                        samples=samples,
                        progress=partial(tell, f"Comparing {table.name}"),
                    )
                found = {each.name.unescaped: t for each, t in table_columns(hyper, file).items()}
            columns = {name: each.columns for name, each in desired.items()}
            return layout_changes(found, declaration, columns), rows
    except (HyperException, NotProvedError, ValueError) as error:
        raise RefreshError(f"{name} cannot be compared: {error}") from error

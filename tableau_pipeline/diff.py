"""In what the published rows differ from those of the models, by key and by column."""

from collections.abc import Callable, Sequence
from functools import partial

from tableauhyperapi import HyperException, TableName

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Diff
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.affected import NotProvedError
from tableau_pipeline.extracts.desired import table_source
from tableau_pipeline.extracts.differences import Differences, differences
from tableau_pipeline.extracts.schema import layout_changes
from tableau_pipeline.hyper.hyper_file import table_columns
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.packages import published_file
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
    remote = _published(setup, server, record)
    try:
        with newest_models(setup) as builder:
            desired = builder.desired(record)
            tell(f"Downloading {name}" + (f", {each} MB" if (each := remote.megabytes) else ""))
            with published_file(server, remote) as file:
                hyper = setup.hyper()
                types = table_columns(hyper, file)
                places = {
                    table.name: _place(declaration.target(table.name), [*types])
                    for table in declaration.tables
                }
                for table in declaration.tables:
                    model = builder.models[table.model]
                    rows[table.name] = differences(
                        hyper,
                        file,
                        places[table.name],
                        table_source(table.name, model, desired[table.name].cutoff),
                        key=table.policy.key if isinstance(table.policy, Diff) else (),
                        samples=samples,
                        progress=partial(tell, f"Comparing {table.name}"),
                    )
            names = {place: declaration.published_name(each) for each, place in places.items()}
            found = {names.get(each, each.name.unescaped): types[each] for each in types}
            columns = {name: each.columns for name, each in desired.items()}
            return layout_changes(found, declaration, columns), rows
    except (HyperException, NotProvedError, ValueError) as error:
        raise RefreshError(f"{name} cannot be compared: {error}") from error


def _published(setup: Setup, server: TableauSite, record: Checkpoint | None) -> RemoteDatasource:
    """The data source: that of our records, or one of others that a refresh would take over."""
    declaration = setup.declaration
    if record and record.luid:
        remote, why = server.find_by_luid(record.luid), "it is no longer on the server"
    else:
        project = server.find_project(declaration.project)
        remote = server.find_by_name(declaration.name, project_id=project) if project else None
        why = f'the project "{declaration.project_path}" has no data source of this name'
    if remote is None:
        raise RefusedError(
            f"There is nothing of {declaration.name} to compare: {why}. Run its refresh",
            code=Code.NOT_PUBLISHED,
        )
    return remote


def _place(target: TableName, found: Sequence[TableName]) -> TableName:
    """Where a table is in the published file: others use other schemas, such as "public"."""
    named = [each for each in found if each.name == target.name]
    if target in found or not found:
        return target
    if len(named) == 1:
        return named[0]
    return found[0] if len(found) == 1 else target

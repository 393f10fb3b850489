"""Compare published tables with the snapshots behind them by what the server counts."""

from collections.abc import Callable, Mapping

from tableauhyperapi import HyperProcess

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.server import Server
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.compare import Reconciliation, model_rows
from tableau_pipeline.extracts.value_counts import count_values, countable_columns
from tableau_pipeline.hyper.process import connect

# Seconds until the server is asked again. A cache of it may have held the former rows.
_PAUSE = 5


def compare_counts(
    server: Server,
    checkpoint: Checkpoint,
    luid: str,
    *,
    keys: Mapping[str, str],
    sleep: Callable[[float], None],
) -> Reconciliation:
    """Compare the number of rows of each table with a checkpoint.

    A different number is asked for once more. It is a `problem` then, but no proof: see
    `Server.count`.

    Args:
        keys: a column without NULL of each table that is known to have one.
    """
    names = {checkpoint.target(name).name.unescaped: name for name in checkpoint.tables}
    columns = {published: keys.get(name) for published, name in names.items()}
    expected = {published: checkpoint.rows[name] for published, name in names.items()}
    known = checkpoint.habits.counts
    ways = {published: known[name] for published, name in names.items() if name in known}
    try:
        counted = dict(server.count(luid, columns, ways=ways))
        differing = {name: columns[name] for name in columns if counted[name][0] != expected[name]}
        if differing:
            sleep(_PAUSE)
            counted.update(server.count(luid, differing, ways=ways, fresh=True))
    except RefreshError as error:
        return _not_asked(error)
    problems = [
        f"the server counts {rows:,} rows in {names[each]}, its model has {expected[each]:,}"
        for each, (rows, _) in counted.items()
        if rows != expected[each]
    ]
    return Reconciliation(
        "; ".join(problems) or None,
        by={names[each]: way for each, (_, way) in counted.items()},
        rows={names[each]: rows for each, (rows, _) in counted.items()},
    )


def compare_values(
    server: Server,
    checkpoint: Checkpoint,
    luid: str,
    *,
    snapshots: Snapshots,
    hyper: Callable[[], HyperProcess],
) -> Reconciliation:
    """Compare the counts of the values in each column with the snapshots of a checkpoint."""
    names = {checkpoint.target(name).name.unescaped: name for name in checkpoint.tables}
    columns = {each: countable_columns(checkpoint.tables[name]) for each, name in names.items()}
    problems: list[str] = []
    try:
        found = server.count_columns(luid, columns)
        for published, name in names.items():
            model = model_rows(name, checkpoint.tables[name], snapshots)
            with connect(hyper()) as connection:
                wanted = count_values(connection, model, columns[published])
            problems += [
                f"the values of {name}.{column} are not as many, or others"
                for column in wanted
                if found[published][column] != wanted[column]
            ]
    except RefreshError as error:
        return _not_asked(error)
    return Reconciliation("; ".join(problems) or None)


def _not_asked(error: RefreshError) -> Reconciliation:
    return Reconciliation(skipped=f"the server cannot tell: {error}")

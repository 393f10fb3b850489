"""Compare a downloaded data source with its models, row by row."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tableauhyperapi import HyperProcess

from tableau_pipeline.core.checkpoint import Cutoff
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.hyper.hyper_file import read_table


def differences(
    hyper: HyperProcess,
    tdsx: Path,
    declaration: Declaration,
    models: Mapping[str, Snapshot],
    *,
    cutoffs: Mapping[str, Cutoff] = MappingProxyType({}),
) -> list[str]:
    """Return a phrase for each table that differs; [] if all are equal.

    Both sides are read by means that the pipeline does not use: snapshots by Arrow, the data source
    from the file that Tableau returns. All columns and rows are compared, in any order of rows.

    Args:
        cutoffs: for tables with a rolling window; rows before the cutoff must not be published.
    """
    with zipfile.ZipFile(tdsx) as package:
        (member,) = (name for name in package.namelist() if name.endswith(".hyper"))
        file = Path(package.extract(member, tdsx.parent))
    found = []
    for table in declaration.tables:
        published = read_table(hyper, file, declaration.target(table.name))
        if problem := _difference(
            _kept(_model(models[table.model]), cutoffs.get(table.name)), published
        ):
            found.append(f"{table.name}: {problem}")
    return found


def _model(snapshot: Snapshot) -> pa.Table:
    snapshot.check_columns()
    columns = [column.name for column in snapshot.columns]
    files = snapshot.paths_of(file for part in snapshot.parts for file in part.files)
    # By default pyarrow takes the name of a folder for another column.
    tables = [pq.read_table(file, columns=columns, partitioning=None) for file in files]
    return _comparable(pa.concat_tables(tables))


def _kept(rows: pa.Table, cutoff: Cutoff | None) -> pa.Table:
    if cutoff is None:
        return rows
    column = rows[cutoff.column]
    expired = pc.call_function("less", [column, pa.scalar(cutoff.value).cast(column.type)])
    return rows.filter(pc.call_function("invert", [expired.fill_null(False)]))


def _comparable(table: pa.Table) -> pa.Table:
    """Convert instants to the wall clock time in UTC, as in Tableau."""
    fields = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _difference(model: pa.Table, published: pa.Table) -> str | None:
    if model.column_names != published.column_names:
        return f"columns {model.column_names} became {published.column_names}"
    if model.num_rows != published.num_rows:
        return f"{model.num_rows:,} rows became {published.num_rows:,}"
    published = _comparable(published)
    by_all_columns = [(name, "ascending") for name in model.column_names]
    model, published = model.sort_by(by_all_columns), published.sort_by(by_all_columns)
    for name in model.column_names:
        if model.column(name) != published.column(name).cast(model.schema.field(name).type):
            return f"column {name} differs"
    return None

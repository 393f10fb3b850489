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
from tableau_pipeline.metadata.document import LARGEST
from tableau_pipeline.publishing.package_stream import read_tds


def tds_in(file: Path) -> bytes:
    """Return the `.tds` in a downloaded file."""
    return read_tds(iter([file.read_bytes()]), limit=LARGEST)


def differences(
    hyper: HyperProcess,
    tdsx: Path,
    declaration: Declaration,
    models: Mapping[str, Snapshot],
    *,
    cutoffs: Mapping[str, Cutoff] = MappingProxyType({}),
) -> list[str]:
    """Return a phrase for each table that differs; [] if all tables are equal.

    This function reads both sides in ways that the pipeline does not use: snapshots by Arrow, and
    the data source from the file that Tableau returns. It compares all columns and rows, and
    ignores the order of rows.

    Args:
        cutoffs: the cutoff of each table with a rolling window; no earlier row may be published.
    """
    with zipfile.ZipFile(tdsx) as package:
        (member,) = (name for name in package.namelist() if name.endswith(".hyper"))
        file = Path(package.extract(member, tdsx.parent))
    found = []
    for table in declaration.tables:
        snapshot = models[table.model]
        snapshot.check_columns()
        columns = [column.name for column in snapshot.columns]
        files = snapshot.paths_of(file for part in snapshot.parts for file in part.files)
        # By default, pyarrow adds a column for the name of a folder.
        read = [pq.read_table(each, columns=columns, partitioning=None) for each in files]
        model = _kept(_comparable(pa.concat_tables(read)), cutoffs.get(table.name))
        published = _comparable(read_table(hyper, file, declaration.target(table.name)))
        if published.column_names != columns:
            problem = f"columns {columns} became {published.column_names}"
        elif model.num_rows != published.num_rows:
            problem = f"{model.num_rows:,} rows became {published.num_rows:,}"
        else:
            by_all_columns = [(name, "ascending") for name in columns]
            model, published = model.sort_by(by_all_columns), published.sort_by(by_all_columns)
            types = zip(columns, model.schema.types, strict=True)
            differ = (n for n, type_ in types if model[n] != published[n].cast(type_))
            problem = next((f"column {name} differs" for name in differ), None)
        found += [f"{table.name}: {problem}"] if problem else []
    return found


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

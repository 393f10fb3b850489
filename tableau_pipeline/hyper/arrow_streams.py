"""Stream Arrow data to and from hyperd through files, without handling rows in Python."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pyarrow as pa
from tableauhyperapi import Connection, escape_name

from tableau_pipeline.hyper.types.arrow_types import arrow_sql_type, plain
from tableau_pipeline.hyper.types.literals import string_literal


class ArrowStream(Protocol):
    """Data in columns: Arrow tables, record batch readers, data frames of most libraries."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


@dataclass(frozen=True, slots=True)
class Scan:
    """Arrow data as SQL: `relation` has columns with these `types`, by name."""

    relation: str
    types: dict[str, str]


@contextmanager
def scanned(data: ArrowStream) -> Generator[Scan]:
    """Let hyperd read Arrow data, batch by batch, within the block.

    Raises:
        UnsupportedArrowTypeError: names the column and its type.
        pyarrow.ArrowInvalid: a value does not fit, such as a time stamp with nanoseconds.
    """
    with TemporaryDirectory() as folder, pa.RecordBatchReader.from_stream(data) as reader:
        schema = pa.schema([plain(field) for field in reader.schema])
        # A file, because a pipe could be read only once: the check of keys scans it too.
        file = Path(folder) / "rows.arrows"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in reader:
                writer.write_batch(batch.cast(schema))
        types = {field.name: arrow_sql_type(field.type) for field in schema}
        columns = ", ".join(f"{escape_name(name)} {type_}" for name, type_ in types.items())
        path = string_literal(str(file))
        yield Scan(
            f"external({path}, COLUMNS => DESCRIPTOR({columns}), FORMAT => 'arrowstream')", types
        )


@contextmanager
def streamed(connection: Connection, query: str) -> Generator[pa.RecordBatchReader]:
    """Read the rows of a query, batch by batch, within the block."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.arrows"
        connection.execute_command(
            f"COPY ({query}) TO {string_literal(str(file))} WITH (FORMAT arrowstream)"
        )
        with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as reader:
            # hyperd writes dates as milliseconds, and names the zone "Utc".
            yield reader.cast(pa.schema([plain(field) for field in reader.schema]))

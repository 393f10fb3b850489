"""A Parquet file that is published as it is, of which we read the schema only."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.hyper.tables import Column


@dataclass(frozen=True, kw_only=True)
class ParquetFile(Builder):
    """A whole file that need not be built, and that nothing less can replace."""

    extract: Extract
    table: TableContent

    @property
    def whole(self) -> str:
        """Why nothing less may be sent."""
        return "the server converts the file as it is"

    @property
    def digest(self) -> str:
        """What the server makes of the file need not be what we would have made of it."""
        return f"as it is: {self.declaration.digest()}"

    def desired(self, record: Checkpoint | None) -> Mapping[str, TableContent]:
        """The rows of the file."""
        return {self.declaration.fact_table: self.table}

    def check(self, desired: Mapping[str, TableContent]) -> None:
        """The server reads the rows, not we."""

    def file(self, desired: Mapping[str, TableContent]) -> Extract:
        """The file itself."""
        return self.extract

    def orphans(
        self, desired: Mapping[str, TableContent], changed: Collection[str]
    ) -> dict[str, int]:
        """One table has no relationships."""
        return {}


def parquet_file(file: Path, bare: Builder) -> ParquetFile:
    """A file by its schema, rows and bytes; in a fingerprint that no snapshot has.

    Args:
        bare: builds for the same data source, of no models.

    Raises:
        RefusedError: it is no Parquet file.
    """
    try:
        metadata = pq.read_metadata(file)
        schema = metadata.schema.to_arrow_schema()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise RefusedError(f"it cannot be read as Parquet: {error}") from error
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    content = Fingerprint(
        rows=metadata.num_rows, hash_sum=int(digest[:16], 16), algorithm="sha256 of the file"
    )
    name = bare.declaration.fact_table
    columns = tuple(Column(field.name, str(field.type)) for field in schema)
    return ParquetFile(
        **{field.name: getattr(bare, field.name) for field in fields(bare)},
        extract=Extract(file, {name: metadata.num_rows}, file.stat().st_size, version=2),
        # No store has a version of this number.
        table=TableContent(
            model=name, version=-1, columns=columns, all_rows=content, content=content
        ),
    )

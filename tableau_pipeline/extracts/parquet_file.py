"""A Parquet file that is published unread: only its schema and metadata are used."""

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
    """A whole file that need not be built, and that no update can replace."""

    extract: Extract
    table: TableContent

    @property
    def whole(self) -> str:
        """Why only the whole file may be sent."""
        return "the server converts the file as it is"

    @property
    def digest(self) -> str:
        """A digest that differs from that of a built file, as the server's extract may differ."""
        return f"as it is: {self.declaration.digest()}"

    def desired(self, record: Checkpoint | None) -> Mapping[str, TableContent]:
        """Return the content of the one table: the rows of the file."""
        return {self.declaration.fact_table: self.table}

    def check(self, desired: Mapping[str, TableContent]) -> None:
        """Do nothing: the server reads the rows."""

    def file(self, desired: Mapping[str, TableContent]) -> Extract:
        """Return the file itself."""
        return self.extract

    def orphans(
        self,
        desired: Mapping[str, TableContent],
        *,
        changed: Collection[str],
        base: Checkpoint | None,
    ) -> dict[str, int]:
        """Return nothing: one table has no relationships."""
        return {}


def parquet_file(file: Path, bare: Builder) -> ParquetFile:
    """Describe a Parquet file by its schema, its row count and a hash of its bytes.

    Args:
        bare: the builder of the same data source, without models.

    Raises:
        RefusedError: it is not a Parquet file.
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
        **{field.name: getattr(bare, field.name) for field in fields(bare) if field.init},
        extract=Extract(file, {name: metadata.num_rows}, file.stat().st_size, version=2),
        # No store has a version with this number.
        table=TableContent(
            model=name, version=-1, columns=columns, all_rows=content, content=content
        ),
    )

"""A Parquet file that is published as it is: the server makes the extract of it."""

import hashlib
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import file_name
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.refresh.attempt import Attempt
from tableau_pipeline.refresh.builder import Builder
from tableau_pipeline.refresh.history import read_history
from tableau_pipeline.refresh.plan import Options
from tableau_pipeline.refresh.refresh import Refresh
from tableau_pipeline.refresh.report import Report


@dataclass(frozen=True, slots=True)
class AsIsRefresh:
    """A refresh of a data source of one table, from a file of which we read the schema only.

    It is planned as every refresh is: ownership, guards, schema changes and analysts' work count.
    """

    refresh: Refresh
    file: Path

    def run(self, options: Options) -> Report:
        """Make the published data source equal to the file, or say why not.

        Raises:
            RefusedError: it would be wrong or unsafe; nothing was sent or overwritten.
            RefreshError: it could not be carried out; the next run finds out what is open.
        """
        refresh = self.refresh
        if options.dry_run:
            history = read_history(refresh.journal.records())
            content = self._content(self.file)
            with refresh.server() as server:
                return Attempt(refresh, server, content, history, options).dry_run()
        with refresh.claimed() as claim:
            copy = self._copy()
            try:
                content = self._content(copy)
                with refresh.server() as server:
                    return Attempt(refresh, server, content, claim.history, options).run(claim)
            finally:
                copy.unlink()

    def _copy(self) -> Path:
        """What is sent must be what was looked at, even if somebody writes the file again."""
        folder = self.refresh.folder / "extracts" / file_name(self.refresh.declaration.key)
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / f"{self.refresh.run_id}.parquet"
        shutil.copyfile(self.file, copy)
        return copy

    def _content(self, file: Path) -> "_File":
        """The file's schema, rows and bytes; in a fingerprint that no snapshot has.

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
        name = self.refresh.declaration.fact_table
        columns = tuple(Column(field.name, str(field.type)) for field in schema)
        bare = self.refresh.content({})
        return _File(
            **{field.name: getattr(bare, field.name) for field in fields(bare)},
            extract=Extract(file, {name: metadata.num_rows}, file.stat().st_size, version=2),
            # No store has a version of this number.
            table=TableContent(
                model=name, version=-1, columns=columns, all_rows=content, content=content
            ),
        )


@dataclass(frozen=True, kw_only=True)
class _File(Builder):
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

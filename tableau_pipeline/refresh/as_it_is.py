"""A Parquet file that is published as it is: the server makes the extract of it."""

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.core.checkpoint import PublishMode, State, TableState
from tableau_pipeline.core.declaration import file_name
from tableau_pipeline.core.server import Server
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.refresh.fit import in_full
from tableau_pipeline.refresh.plan import NoChange, Options, Refuse, Update, plan
from tableau_pipeline.refresh.report import Clock, Report
from tableau_pipeline.refresh.send import WholeFile
from tableau_pipeline.refresh.step import Refresh


@dataclass(frozen=True, slots=True)
class AsItIs:
    """A refresh of a data source of one table, from a file of which we read the schema only.

    It is planned as every refresh is: ownership, guards, schema changes and analysts' work count.
    """

    refresh: Refresh
    file: Path

    def run(self, options: Options) -> Report:
        """Make the published data source equal to the file, or say why not.

        Raises:
            RefusedError: it would be wrong or unsafe; nothing was sent or overwritten.
            RefreshError: it could not be carried out; the next run settles what is open.
        """
        with self.refresh.alone():
            file = self._copy()
            try:
                table = _described(file)
                with self.refresh.server() as server:
                    return self._run(server, file, table, options)
            finally:
                if file not in self.refresh.needed():
                    file.unlink()

    def _copy(self) -> Path:
        """What is sent must be what was looked at, even if somebody writes the file anew."""
        folder = self.refresh.folder / "extracts" / file_name(self.refresh.declaration.key)
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / f"{self.refresh.run_id}.parquet"
        shutil.copyfile(self.file, copy)
        return copy

    def _run(self, server: Server, file: Path, table: TableState, options: Options) -> Report:
        refresh, declaration = self.refresh, self.refresh.declaration
        clock, size = Clock(), file.stat().st_size
        with clock.phase("settle"):
            project_id = refresh.project(server)
            view = refresh.look(server, project_id, options)
        desired = State(
            server=server.url,
            site=server.site,
            project=declaration.project,
            name=declaration.name,
            # What the server makes of the file need not be what we would have made of it.
            declaration=f"as it is: {declaration.digest()}",
            tables={declaration.fact_table: table},
            size=size,
        )
        decision = plan(declaration, desired, view, options)
        if isinstance(decision, Update):
            decision = in_full(decision, "the server converts the file as it is")
        refresh.log.info("Decision: %s. Reason: %s", decision.decision, decision.reason)
        report = Report(plan=decision, remote=view.remote, seconds=clock.seconds)
        if options.dry_run:
            return report
        if isinstance(decision, Refuse):
            raise RefusedError(decision.reason, decision.failed)
        if isinstance(decision, NoChange):
            return replace(report, state=view.bases[-1])
        keeps_metadata = decision.mode is PublishMode.REPLACE
        metadata = view.our_metadata if keeps_metadata else None
        sending = WholeFile(
            file=file,
            target=desired.model_copy(update={"metadata": metadata}),
            mode=decision.mode,
            to=view.remote,
            project_id=project_id or server.project(declaration.project, create=True),
            tag=declaration.tag,
            edited=keeps_metadata and view.edited,
        )
        with clock.phase("send"):
            state, remote, intent = refresh.sender(server).publish(sending)
        return replace(report, state=state, remote=remote, job_id=intent.job_id, sent=size)


def _described(file: Path) -> TableState:
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
    columns = tuple(Column(field.name, str(field.type)) for field in schema)
    return TableState(columns=columns, folders=(), model=content, content=content)

"""One refresh of one data source, from start to finish: settle, plan, build, send, record."""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.refresh.declaration import Declaration
from tableau_pipeline.refresh.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.inputs import Models, build, check_keys, check_models
from tableau_pipeline.refresh.journal import Journal
from tableau_pipeline.refresh.look import look
from tableau_pipeline.refresh.plan import NoChange, Options, Plan, Refuse, plan
from tableau_pipeline.refresh.send import Sending, send
from tableau_pipeline.refresh.server import RemoteDatasource, Server
from tableau_pipeline.refresh.state import PublishMode, State, TableState


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a refresh waits, in seconds: for another one of the same data source, for a job."""

    lock: float = 3600
    job: float = 7200


@dataclass(frozen=True, slots=True)
class Report:
    """What a refresh did.

    Attributes:
        plan: None when only the file was asked for.
        extract: None when nothing was built.
        state: None when the data source was not refreshed.
        seconds: by phase.
    """

    plan: Plan | None
    extract: Extract | None = None
    state: State | None = None
    remote: RemoteDatasource | None = None
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refresh:
    """Everything that a refresh works with.

    Attributes:
        models: finds the newest snapshots of each table's model, by table; none where there are
            none. Asked for when no other refresh runs: an older one must not come last.
        server: opens a session when it is first needed.
        folder: for the locks and files of refreshes; the same for every run of a data source.
        run_id: says in the records whose sending it was.
    """

    declaration: Declaration
    models: Callable[[], Models]
    journal: Journal
    server: Callable[[], AbstractContextManager[Server]]
    hyper: Callable[[], HyperProcess]
    folder: Path
    run_id: str
    log: logging.Logger
    limits: Limits = field(default_factory=Limits)

    def run(self, options: Options) -> Report:
        """Make the published data source equal to its models, or say why not.

        Raises:
            RefusedError: it would be wrong or unsafe; nothing was sent or overwritten.
            RefreshError: it could not be carried out; the next run settles what is open.
        """
        with self._alone():
            models = self.models()
            check_models(self.declaration, models)
            if not options.publish:
                return self._only_build(models)
            with self.server() as server:
                return self._refresh(server, models, options)

    def _only_build(self, models: Models) -> Report:
        clock = _Clock()
        with clock.phase("build"):
            extract = self._build(models)
        return Report(plan=None, extract=extract, seconds=clock.seconds)

    def _refresh(self, server: Server, models: Models, options: Options) -> Report:
        clock, declaration = _Clock(), self.declaration
        desired = State(
            server=server.url,
            site=server.site,
            project=declaration.project,
            name=declaration.name,
            declaration=declaration.digest(),
            tables={name: TableState.of(found) for name, found in models.items()},
        )
        with clock.phase("settle"):
            project_id = (
                server.find_project(declaration.project)
                if declaration.create_project
                else server.project(declaration.project, create=False)
            )
            known = look(
                declaration,
                self.journal,
                server,
                project_id=project_id,
                timeout=self.limits.job,
                log=self.log,
            )
        with clock.phase("plan"):
            decision = plan(declaration, desired, known, options)
        self.log.info("Decision: %s. Reason: %s", decision.decision, decision.reason)
        report = Report(plan=decision, remote=known.remote, seconds=clock.seconds)
        if options.dry_run:
            return report
        if isinstance(decision, Refuse):
            raise RefusedError(decision.reason)
        if isinstance(decision, NoChange):
            # The newest snapshots take the place of equal ones, which may then be collected.
            state = known.bases[-1].model_copy(update={"tables": desired.tables})
            return replace(report, state=state)
        with clock.phase("build"):
            extract = self._build(models)
        with clock.phase("send"):
            keeps_metadata = decision.mode is PublishMode.REPLACE
            metadata = known.our_metadata if keeps_metadata else None
            sending = Sending(
                file=extract.path,
                target=desired.model_copy(update={"metadata": metadata}),
                mode=decision.mode,
                to=known.remote,
                project_id=project_id or server.project(declaration.project, create=True),
                tag=declaration.tag,
                run_id=self.run_id,
                edited=keeps_metadata and known.edited,
            )
            state, remote = send(
                sending, server, self.journal, timeout=self.limits.job, log=self.log
            )
        return replace(report, extract=extract, state=state, remote=remote)

    def _build(self, models: Models) -> Extract:
        hyper = self.hyper()
        check_keys(hyper, self.declaration, models)
        self._tidy()
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}.hyper"
        extract = build(hyper, self.declaration, models, path=self._extracts / name)
        rows = ", ".join(f"{table} {count:,}" for table, count in extract.rows.items())
        self.log.info("Built %s (%.1f MB): rows %s", extract.path, extract.size / 1e6, rows)
        return extract

    @property
    def _extracts(self) -> Path:
        return self.folder / "extracts" / self._file_name

    @property
    def _file_name(self) -> str:
        # The folder of "sales" must not hold that of "sales/eu".
        return self.declaration.key.replace("/", ".")

    def _tidy(self) -> None:
        """Remove the files of earlier refreshes but for those that may have to be sent again."""
        needed = {intent.payload for intent in self.journal.intents() if intent.outcome is None}
        for file in self._extracts.glob("*"):
            if file not in needed:
                file.unlink()

    @contextmanager
    def _alone(self) -> Generator[None]:
        path = self.folder / "locks" / f"{self._file_name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self.log.info("Another refresh of %s is running: waiting for it", self.declaration.key)
            try:
                lock.acquire(timeout=self.limits.lock)
            except Timeout:
                raise RefreshError(
                    f"Another refresh of {self.declaration.key} has held {path} for more than "
                    f"{self.limits.lock:.0f} s. Look for a hanging run in Dagster, and end it."
                ) from None
        try:
            yield
        finally:
            lock.release()


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - started, 3)

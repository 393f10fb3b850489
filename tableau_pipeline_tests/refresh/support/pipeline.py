"""One data source, and everything that its refreshes work with, on a running sandbox."""

import logging
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import tableauserverclient as TSC
from tableauhyperapi import TableName

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.deployment import JournalPlace, folder_of
from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.core.journal import History, Intent, Record
from tableau_pipeline.core.journal_store import StoredJournal, owner_here
from tableau_pipeline.core.policies import Policy
from tableau_pipeline.core.snapshot import Snapshot, Span
from tableau_pipeline.hyper.hyper_file import read_table
from tableau_pipeline.hyper.process import Hyperd, hyper_process
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.lake.tables import with_lakes
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline.outcome import Accept
from tableau_pipeline.publishing.session import Password, signed_in
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.differences import differences, tds_in
from tableau_pipeline_tests.refresh.support.asked import Asked
from tableau_pipeline_tests.refresh.support.models import snapshot
from tableau_sandbox.testing import Sandbox

LOG = logging.getLogger("tableau_pipeline_tests.refresh")
STAR = (Relationship("flights", "airlines", (("carrier", "carrier"),)),)

# No update fits into this limit, so every change is published as a whole file.
WHOLE = {"payload_limit_mb": 1e-6}

# On most servers of the tests, requests and time stamps come at once, and jobs end quickly.
TIMEOUTS = Timeouts(claim=30, job=30, queue=30, arrival=0, timestamp=0, first_poll=0.02)

# A function that wraps the journal or the server, to interfere with its calls.
Around = Callable[[Any], Any]


def session(sandbox: Sandbox, user: str = "", password: str = "") -> AbstractContextManager:
    """Sign in by password, because a token has only one session at a time."""
    credentials = Password(user or sandbox.user, password or sandbox.password)
    return signed_in(sandbox.url, site="", credentials=credentials, ca_bundle=None, log=LOG)


def published_rows(site: TableauSite, luid: str) -> pa.Table:
    """The rows in a download of a data source with one table."""
    with TemporaryDirectory() as folder, ZipFile(site.download(luid, Path(folder))) as package:
        (member,) = (name for name in package.namelist() if name.endswith(".hyper"))
        file = Path(package.extract(member, folder))
        return read_table(hyper_process(), file, TableName("Extract", "Extract"))


class RememberingJournal(StoredJournal):
    """A journal that also remembers every record of an intent (to send a request)."""

    def create(self, record: Record, *, after: History) -> History | None:
        """Store a record, and remember the record if it is an intent."""
        created = super().create(record, after=after)
        if created and isinstance(record, Intent):
            with self._memory.open("a", encoding="utf-8") as file:
                file.write(record.model_dump_json() + "\n")
        return created

    def all_intents(self) -> list[Intent]:
        """Every record of an intent, oldest first."""
        if not self._memory.exists():
            return []
        with self._memory.open(encoding="utf-8") as file:
            return [Intent.model_validate_json(line) for line in file]

    def sendings(self) -> list[Intent]:
        """The last record of each request that was ever about to be sent, oldest request first."""
        return list({each.request_id: each for each in self.all_intents()}.values())

    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return self.history().checkpoint

    def intents(self) -> tuple[Intent, ...]:
        """The intents since the newest checkpoint."""
        return self.history().intents

    def store(self, record: Record) -> None:
        """Store a record after all others."""
        self.append(lambda _: record, after=self.history())

    def files(self) -> list[Path]:
        """The files of the records, the newest last."""
        if (deployment := self.place.deployment()) is None:
            return []
        return sorted((self._root / folder_of(deployment, self.key)).glob("*.json"))

    def forget(self) -> None:
        """Lose all records of the data source, but keep the identity of the deployment."""
        for file in self.files():
            file.unlink()

    @property
    def _root(self) -> Path:
        storage = self.place.storage
        assert isinstance(storage, LocalStorage)
        return storage.root

    @property
    def _memory(self) -> Path:
        return self._root.with_name(f"{self.key.replace('/', '.')}.memory")


@dataclass
class Pipeline:
    """A declared data source, its snapshots, and the journal that outlives its refreshes.

    Attributes:
        eyes: a session to inspect the results of refreshes.
        missing: models that were never written.
        dropped: by model, the former partitions that the model no longer has.
        folder: the folder of snapshots, extracts and the journal.
        rejected: the checks that rejected the newest rows of a model, by model.
        user: the user who refreshes, as name and password; by default an administrator.
        sessions: the number of times that refreshes asked for a server.
    """

    sandbox: Sandbox
    eyes: TableauSite
    folder: Path
    declaration: Declaration
    missing: set[str] = field(default_factory=set)
    dropped: dict[str, set[str]] = field(default_factory=dict)
    rejected: dict[str, list[str]] = field(default_factory=dict)
    user: tuple[str, str] = ("", "")
    sessions: int = 0

    @cached_property
    def copies(self) -> LocalCopies:
        """Local copies of the files of tables in object stores."""
        return LocalCopies(self.folder / "copies", limit=10**9)

    @property
    def journal(self) -> RememberingJournal:
        """The journal for all refreshes of this process, which have the same owner."""
        place = JournalPlace(LocalStorage(self.folder / "journal"))
        return RememberingJournal(place, self.declaration.key, owner_here("this process"))

    def model(self, table: str, rows: pa.Table) -> Snapshot:
        """Give a table's model new content."""
        return self.snapshot(table, rows)

    @property
    def store(self) -> SnapshotStore:
        return SnapshotStore(self.folder / "snapshots")

    @property
    def models(self) -> dict[str, Snapshot]:
        """The newest versions of the declared models."""
        snapshots = with_lakes(self, self.declaration, self.copies)
        found = {model: snapshots.newest(model) for model in self.declaration.models}
        return {model: each for model, each in found.items() if each}

    def newest(self, asset_key: str) -> Snapshot | None:
        """The newest version of a model, without dropped partitions."""
        if asset_key in self.missing or (found := self.store.newest(asset_key)) is None:
            return None
        keys = {str(part.partition) for part in found.parts if part.partition}
        return found.only(keys - self.dropped.get(asset_key, set())) if keys else found

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """A version of a model; None if it is gone."""
        return self.store.version(asset_key, number)

    def drop_partitions(self, model: str, keys: Iterable[str]) -> None:
        """Define a model without these partitions from now on."""
        self.dropped.setdefault(model, set()).update(keys)

    def declare(self, **changes: Any) -> None:
        """Change the declaration of the data source."""
        self.declaration = replace(self.declaration, **changes)

    def policy(self, policy: Policy, **more: Any) -> None:
        """Change the policy of the only table, and perhaps other parts of its declaration."""
        (table,) = self.declaration.tables
        self.declare(tables=(replace(table, policy=policy, **more),))

    def snapshot(
        self,
        table: str,
        rows: pa.Table,
        *,
        partition: str | None = None,
        span: Span | None = None,
    ) -> Snapshot:
        """Write content of a table's model, without a refresh."""
        found = next(each for each in self.declaration.tables if each.name == table)
        folder = self.folder / "snapshots"
        dropped = self.dropped.setdefault(found.model, set())
        dropped.discard(partition or "")
        return snapshot(
            folder,
            rows,
            asset_key=found.model,
            partition=partition,
            span=span,
            without=dropped,
        )

    def feed(self, model: str, rows: pa.Table) -> None:
        """Give a feed of changes, which is no table, new content."""
        snapshot(self.folder / "snapshots", rows, asset_key=model)

    def refresh(
        self,
        *,
        around_journal: Around = lambda journal: journal,
        around_server: Around = lambda server: server,
        timeouts: Timeouts = TIMEOUTS,
        now: datetime | None = None,
        sleep: Callable[[float], None] = time.sleep,
        hyper: Callable[[], Hyperd] = hyper_process,
    ) -> Setup:
        """The setup of a refresh in a fresh process. `now` is its time, by default the present."""

        @contextmanager
        def server() -> Generator[TableauSite]:
            self.sessions += 1
            with session(self.sandbox, *self.user) as site:
                yield around_server(site)

        journal: StoredJournal = around_journal(self.journal)
        return Setup(
            declaration=self.declaration,
            snapshots=with_lakes(self, self.declaration, self.copies),
            journal=journal,
            server=server,
            hyper=hyper,
            folder=self.folder,
            backups=self.folder / "kept",
            log=LOG,
            timeouts=timeouts,
            now=lambda: now or datetime.now(UTC),
            sleep=sleep,
            rejected=lambda: self.rejected,
        )

    def run(self, *accept: Accept, around: dict[str, Any] | None = None, **options: Any) -> Any:
        """Refresh, or only plan or build a refresh; return the outcome, which is a `Done`."""
        setup = self.refresh(**(around or {}))
        return Asked(accept=frozenset(accept), **options).carry_out(setup)

    def decide(self, *accept: Accept, **options: Any) -> str:
        """The decision and the reason of a dry run, in one line."""
        plan = self.run(*accept, dry_run=True, **options).plan
        assert plan is not None
        return f"{plan.decision}: {plan.reason}"

    def found(self) -> list[TSC.DatasourceItem]:
        """All data sources of this name on the site, whatever their project."""
        found = self.eyes.tsc.datasources.filter(name=self.name)
        return [each for each in found if each.name == self.name]

    def eyes_id(self, user: str) -> str:
        """The LUID of a user of this name."""
        (found,) = self.eyes.tsc.users.filter(name=user)
        return str(found.id)

    @property
    def name(self) -> str:
        return self.declaration.name

    def wrong(self) -> list[str]:
        """The differences between the published data source and the snapshots; [] for none."""
        (item,) = self.found()
        return self.wrong_at(str(item.id))

    def wrong_at(self, luid: str) -> list[str]:
        """The differences between the data source with a LUID and the snapshots."""
        with TemporaryDirectory() as folder:
            tdsx = self.eyes.download(luid, Path(folder))
            checkpoint = self.journal.checkpoint()
            tables = checkpoint.tables if checkpoint else {}
            cutoffs = {name: table.cutoff for name, table in tables.items() if table.cutoff}
            return differences(
                hyper_process(), tdsx, self.declaration, self.models, cutoffs=cutoffs
            )

    def tds(self) -> str:
        """The published `.tds`."""
        (item,) = self.found()
        with TemporaryDirectory() as folder:
            path = self.eyes.tsc.datasources.download(item.id, folder, include_extract=False)
            return tds_in(Path(path)).decode()

    def extract_files(self) -> list[Path]:
        """The files in the folder of extracts."""
        return sorted(file for file in (self.folder / "extracts").rglob("*") if file.is_file())


def declared(name: str, tables: Iterable[str] = ("flights",), **more: Any) -> Declaration:
    """A declaration with some defaults for tests.

    An update of a few rows is as large as the whole file of a small table. `republish.growth` is
    large, so that refreshes send updates all the same.
    """
    return Declaration(
        **{
            # Each name has its own key, because refreshes look for a key on the whole site.
            "key": name.lower().replace(" ", "_"),
            "name": name,
            "project": "Default",
            "tables": tuple(Table(table, table) for table in tables),
            "republish": {"growth": 1000},
            "reconcile": None,
            **more,
        }
    )

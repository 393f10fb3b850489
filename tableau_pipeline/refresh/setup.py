"""What a refresh of one data source needs: its declaration, models, journal and server."""

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.core.fields import Inherited
from tableau_pipeline.core.identity import file_name
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.checks import TypedSnapshots, checked_models, readable
from tableau_pipeline.extracts.content import Models
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.publishing.site import TableauSite


@dataclass(frozen=True, slots=True)
class Setup:
    """A data source, and everything that its refreshes need.

    Attributes:
        snapshots: the versions of the models. A refresh reads the newest versions only after it has
            claimed the data source. Otherwise, another refresh might publish newer versions first,
            which this refresh would then replace.
        server: a function that opens a session on the site.
        folder: the folder for built files.
        backups: the path or URL of the folder in which data sources with users' edits are saved
            before they are replaced.
        now: a function that returns the current time. `retain` counts its days back from this time.
        sleep: a function that waits for a number of seconds.
        takeover: whether to take over data sources that another deployment publishes.
        link: the URL of the asset in Dagster's web UI; None if it is not known.
        inherited: metadata of the models' columns from sources outside of Spark; the keys are pairs
            of a model and a column.
        original_digest: `whole_digest` of the declaration before `in_environment` moved its project
            and key below the root of the environment; "" if `in_environment` changed nothing.
        samples: whether refusals may show values of rows.
        rejected: a function that returns, for each model, the names of the checks that rejected its
            newest rows. A refresh calls this function only after it has claimed the data source,
            because it reads the rows only then, too.
    """

    declaration: Declaration
    snapshots: Snapshots
    journal: StoredJournal
    server: Callable[[], AbstractContextManager[TableauSite]]
    hyper: Callable[[], Hyperd]
    folder: Path
    backups: Path | str
    log: logging.Logger
    timeouts: Timeouts = field(default_factory=Timeouts)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    takeover: bool = False
    link: str | None = None
    inherited: Inherited = field(default_factory=dict)
    original_digest: str = ""
    samples: bool = False
    rejected: Callable[[], Mapping[str, Sequence[str]]] = dict

    @property
    def written(self) -> Path | str:
        """The path or URL of the folder for the metadata values that refreshes have set."""
        return _sibling(self.backups, "metadata")

    @property
    def sites(self) -> Path | str:
        """The path or URL of the folder for the records of sites."""
        return sites_folder(self.backups)

    def builder(self, models: Models) -> Builder:
        """Return a builder of files from these models."""
        return Builder(
            declaration=self.declaration,
            models=models,
            snapshots=TypedSnapshots(self.snapshots, self.declaration.types),
            hyper=self.hyper,
            folder=self.folder / "extracts" / file_name(self.declaration.key),
            now=self.now,
            log=self.log,
            samples=self.samples,
        )

    @property
    def declaration_digest(self) -> str:
        """The digest of the whole declaration, which is the same in every environment."""
        return self.original_digest or self.declaration.whole_digest()


def sites_folder(backups: Path | str) -> Path | str:
    """Return the path or URL of the folder for the records of sites."""
    return _sibling(backups, "sites")


def _sibling(folder: Path | str, name: str) -> Path | str:
    return (
        f"{folder.rpartition('/')[0]}/{name}" if isinstance(folder, str) else folder.with_name(name)
    )


@contextmanager
def newest_models(setup: Setup) -> Generator[Builder]:
    """Yield a builder of files from the newest version of each model.

    Raises:
        RefusedError: a model has no snapshot, or cannot be published.
    """
    declaration = setup.declaration
    snapshots = TypedSnapshots(setup.snapshots, declaration.types)
    newest = {model: snapshots.newest(model) for model in declaration.models}
    models = checked_models(declaration, newest)
    with readable(setup.hyper, declaration, models):
        yield setup.builder(models)

"""Publish files as a data source: make the declaration, the key, and the store of the rows."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from tableau_pipeline.core.declaration import Declaration, Table, in_environment
from tableau_pipeline.core.identity import asset_key_of
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.core.policies import Diff, Partitions, Policy, ReplaceAll
from tableau_pipeline.errors import FilesError, RefusedError
from tableau_pipeline.hyper.types import Nested
from tableau_pipeline.ingest.file_store import FileStore
from tableau_pipeline.ingest.options import Files, Format, check_options, format_of, matching_files
from tableau_pipeline.ingest.rows import Rows, read_rows
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.snapshots.version_store import SnapshotStore

# The prefix of a data source's key if the data source is published from files.
KEY_PREFIX = "files/"
Mode = Literal["replace", "append"]
BadRowsPolicy = Literal["refuse", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePublication:
    """The files to publish, and the data source; `docs/reference/yaml.md` describes the options.

    Attributes:
        paths: files, folders, or patterns such as "exports/*.csv".

    Raises:
        RefusedError: options contradict each other, or the declaration is wrong.
    """

    paths: tuple[str, ...]
    name: str
    project: str = "Default"
    mode: Mode = "replace"
    format: Format | None = None
    reader: Mapping[str, str] = field(default_factory=dict)
    columns: str | None = None
    bad_rows: BadRowsPolicy = "refuse"
    key: tuple[str, ...] = ()
    file_column: str | None = None
    nested: Nested = "refuse"
    create_project: bool = False
    adopt: bool = False

    def __post_init__(self) -> None:
        if self.file_column and self.mode != "append":
            raise FilesError("file_column needs mode append")
        # If no format is set, the format is unknown until the files are found. So accept the
        # options of all formats.
        check_options(self.reader, *((self.format,) if self.format else get_args(Format)))
        # Make a declaration, which checks the name and the project.
        self.declaration()

    def declaration(self) -> Declaration:
        """Return the declaration; its key differs from all default keys, which contain no "/"."""
        # Add a hash to the key. Otherwise, two names might share a key if they differ only in
        # special characters or in their projects.
        place = hashlib.sha256(f"{self.project}/{self.name}".encode()).hexdigest()[:8]
        key, policy = f"{KEY_PREFIX}{asset_key_of(self.name)}_{place}", ReplaceAll()
        if self.key:
            policy: Policy = Diff(tuple(self.key))
        elif self.file_column:
            policy = Partitions(self.file_column)
        return Declaration(
            key=key,
            name=self.name,
            project=self.project,
            tables=(Table(self.name, f"{key}/rows", policy=policy),),
            create_project=self.create_project,
            adopt=self.adopt,
            nested=self.nested,
        )

    def files(self) -> Files:
        """Return the files, in the order of the paths.

        Raises:
            RefusedError: a path matches no file, or the format is unknown.
        """
        found = dict.fromkeys(path for pattern in self.paths for path in matching_files(pattern))
        paths = tuple(found)
        return Files(paths, self.format or format_of(paths), self.reader, self.columns)

    def read(self, folder: Path, log: logging.Logger) -> Rows:
        """Read the files, and write their rows to a folder; see `read_rows`."""
        files = self.files()
        log.info("Reading %s", ", ".join(map(str, files.paths)))
        return read_rows(files, folder, nested=self.nested == "json")

    def store(
        self,
        store: SnapshotStore,
        *,
        run_id: str,
        published: Callable[[], int | None],
        log: logging.Logger,
    ) -> FileStore:
        """Return the store of the rows, which reads the files when a refresh asks for the rows.

        Args:
            published: returns the version to which the mode `append` adds rows; see
                `published_version`.
        """
        return FileStore(
            store=store,
            read=lambda folder: self.read(folder, log),
            run_id=run_id,
            built_on=published if self.mode == "append" else None,
            file_column=self.file_column,
            drop_bad_rows=self.bad_rows == "drop",
        )


def published_version(
    declaration: Declaration,
    journal: StoredJournal,
    *,
    root: str,
    server: Callable[[], AbstractContextManager[TableauSite]] | None,
) -> int | None:
    """Return the published version of the rows; None if there is no published data source.

    A newer version may be stored: a refresh may have refused its rows.

    Args:
        root: the path of the Tableau project that contains all projects of the environment; "" if
            there is none.
        server: opens a session. None to build a file only, without signing in. If no record names a
            published version, the built file then lacks the rows of earlier files.

    Raises:
        RefusedError: the data source exists, but no record names its version.
    """
    (model,) = declaration.models
    version = journal.history().published_version(model)
    if version is None and server:
        target = in_environment(declaration, root)
        with server() as site:
            project = site.find_project(target.project)
            if project and (remote := site.find_by_name(target.name, project_id=project)):
                raise RefusedError(
                    f'A data source "{remote.name}" exists in project "{target.project_path}", but '
                    "no record says which rows it holds, so nothing can be added to them: publish "
                    "all files with mode replace first",
                    code=Code.PUBLISHED_VERSION,
                )
    return version

"""Manage the data sources, jobs and answers of a trial."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from tableauhyperapi import TableName

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.declaration import Project
from tableau_pipeline.core.drift import Job, NoJob, RemoteDatasource
from tableau_pipeline.core.identity import TAG_PREFIX
from tableau_pipeline.core.site_record import SiteRecord
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.build import NEW, create_table, new_file
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA
from tableau_pipeline.publishing.packages import published_file
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.trial.facts import FACTS, Answer, Verdict

Rows = Sequence[tuple[int, str]]

_PREFIX = "tableau-pipeline trial"
_NAME = re.compile(rf"{_PREFIX} [0-9a-f]{{8}} .+")
TAG = "tableau-pipeline-trial"
# Wait longer than a second, because time stamps have whole seconds.
_SECOND = 1.1
_PAUSE = 0.25
_VERSION = 2
_FIRST_PAUSE, _GROWTH, _LONGEST_PAUSE = 0.05, 1.3, 5.0


class QueueError(RefreshError):
    """A job of the trial takes longer than the trial waits."""


class State(Frozen):
    """The progress of a trial.

    Attributes:
        project: the path of the project.
        key: a part of the names of the trial's data sources. It is new for each start.
        done: the names of the finished steps.
        jobs: the ids of jobs that may still run.
        lags: for each measured job, the seconds from its end to the time stamp that it set.
        listing: how many seconds a new data source needs to appear in lists.
    """

    project: str
    key: str
    done: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    jobs: tuple[str, ...] = ()
    lags: tuple[float, ...] = ()
    listing: float = 0

    @classmethod
    def new(cls, project: str) -> "State":
        """Return the state of a new trial."""
        return cls(project=project, key=new_key())


def new_key() -> str:
    """Return a new part for the names of data sources, which no other trial uses."""
    return uuid4().hex[:8]


@dataclass
class Workshop:
    """The site of a trial, and everything that the steps need.

    Attributes:
        project: the project for the data sources of the trial.
        folder: the folder for files of the trial on this host.
        backups: the path or URL of the folder for saved data sources. The records of sites are in
            the same parent folder.
        wait: how many seconds to wait for a job.
        hidden_wait: how many seconds to wait for the effect of a job that the site hides.
        jobs_seen: by id, the last status of each job for which the trial no longer waits.
        sleep: a function that waits for a number of seconds.
        save: a function that stores the state.
    """

    site: TableauSite
    record: SiteRecord
    hyper: Hyperd
    project: Project
    project_id: str
    folder: Path
    backups: Path | str
    state: State
    wait: float
    sleep: Callable[[float], None]
    save: Callable[[State], None]
    hidden_wait: float = 60
    jobs_seen: dict[str, Job | NoJob] = field(default_factory=dict)

    def name(self, kind: str) -> str:
        """Return the name of this trial's data source of a kind, such as "two tables"."""
        return f"{_PREFIX} {self.state.key} {kind}"

    def update(self, **changes: object) -> None:
        """Change the state, and store it."""
        self.state = self.state.model_copy(update=changes)
        self.save(self.state)

    def answer(self, fact: str, verdict: Verdict, detail: str = "") -> None:
        """Store an answer; replace an earlier answer about the same fact."""
        answer = Answer(fact=FACTS[fact].name, verdict=verdict, detail=detail)
        others = (other for other in self.state.answers if other.fact != fact)
        self.update(answers=(*others, answer))

    def as_assumed(self, fact: str, *, unless: str | None = None) -> None:
        """Answer that a fact is as assumed; or, if `unless` is given, that it differs like this."""
        self.answer(fact, Verdict.DIFFERENT if unless else Verdict.AS_ASSUMED, unless or "")

    def unknown(self, why: str, *facts: str) -> None:
        """Answer that the trial could not check some facts; keep earlier answers about them."""
        answered = {answer.fact for answer in self.state.answers}
        for fact in facts:
            if fact not in answered:
                self.answer(fact, Verdict.UNKNOWN, why)

    def is_as_assumed(self, fact: str) -> bool:
        """Whether the answer to a fact is as assumed."""
        return Answer(fact=fact, verdict=Verdict.AS_ASSUMED) in self.state.answers

    def find(self, kind: str) -> RemoteDatasource | None:
        """Return this trial's data source of a kind; None if it does not exist."""
        return self.site.find_by_name(self.name(kind), project_id=self.project_id)

    def found(self, kind: str) -> RemoteDatasource:
        """Return this trial's data source of a kind.

        Raises:
            RefreshError: the data source does not exist.
        """
        remote = self.find(kind)
        if remote is None:
            raise RefreshError(f'"{self.name(kind)}" is no longer on the site: begin again')
        return remote

    def file(self, tables: Mapping[str, Rows], *, related: bool = False) -> Path:
        """Write a `.hyper` file; its tables have a column of numbers and a column of texts."""
        path = self.folder / f"{uuid4().hex}.hyper"
        with new_file(self.hyper, path, version=_VERSION) as connection:
            for name, rows in tables.items():
                table = TableName(NEW, EXTRACT_SCHEMA, name)
                key = ("id",) if related else ()
                create_table(connection, table, {"id": "BIGINT", "name": "TEXT"}, key=key)
                values = ", ".join(f"({number}, '{text}')" for number, text in rows)
                connection.execute_command(f"INSERT INTO {table} VALUES {values}")  # noqa: S608
            if related:
                many, one = (TableName(NEW, EXTRACT_SCHEMA, name) for name in tables)
                connection.execute_command(
                    f"ALTER TABLE {many} ADD ASSUMED FOREIGN KEY (id) REFERENCES {one} (id)"
                )
        return path

    def rows(self, remote: RemoteDatasource) -> dict[str, list[tuple[int, str]]]:
        """Download a data source; return the rows of each table, ordered by their numbers."""
        tables = {}
        with published_file(self.site, remote) as file, connect(self.hyper, file) as connection:
            for table in connection.catalog.get_table_names(EXTRACT_SCHEMA):
                query = f"SELECT id, name FROM {table} ORDER BY 1, 2"  # noqa: S608
                rows = connection.execute_list_query(query)
                tables[str(table.name.unescaped)] = [(int(row[0]), str(row[1])) for row in rows]
        return tables

    def upload(self, file: Path) -> str:
        """Upload a file, and remove the local file; return the id of the upload."""
        try:
            return self.site.upload(file)
        finally:
            file.unlink()

    def publish(self, kind: str, file: Path, mode: PublishMode = PublishMode.CREATE) -> str:
        """Publish a file; return the id of the publish job.

        Raises:
            RefusedError: the site refuses the request.
        """
        upload, suffix = self.upload(file), file.suffix
        job = self.site.publish(
            upload, name=self.name(kind), project_id=self.project_id, mode=mode, suffix=suffix
        )
        return self.opened(job)

    def opened(self, job: str) -> str:
        """Store the id of a started job; return the id."""
        self.update(jobs=(*self.state.jobs, job))
        return job

    def took_effect(self, job: str, shows: Callable[[], bool]) -> bool | None:
        """Wait for the end of a job, and return whether it has taken effect.

        Return None if the site hides the job, and no effect has shown in time.

        Raises:
            QueueError: the job takes longer than the trial waits.
        """
        began, pause = self.site.now(), _FIRST_PAUSE
        while True:
            status = self.site.job(job)
            seconds = (self.site.now() - began).total_seconds()
            if isinstance(status, Job):
                effect = status.outcome is Outcome.DONE if status.outcome else None
                is_over = effect is not None
            else:
                effect = True if shows() else None
                is_gone = status is NoJob.GONE
                is_over = effect or is_gone or seconds >= min(self.wait, self.hidden_wait)
                effect = False if is_gone and not effect else effect
            if is_over:
                self.jobs_seen[job] = status
                self.update(jobs=tuple(other for other in self.state.jobs if other != job))
                return effect
            if seconds >= self.wait:
                raise QueueError(
                    f"Job {job} of the site has not ended within {self.wait:.0f} s: start the "
                    "trial again with --resume, later or with a longer --wait"
                )
            self.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    def appears(self, kind: str) -> bool:
        """Whether a data source is listed; wait as long as a new data source may need for this."""
        until = self.site.now() + timedelta(seconds=2 * self.state.listing)
        while (is_there := self.find(kind) is not None) is False and self.site.now() < until:
            self.sleep(_PAUSE)
        return is_there

    def pass_a_second(self) -> None:
        """Wait until the clock of the site shows another second."""
        self.sleep(_SECOND)

    def clean(self) -> Sequence[str]:
        """Delete all data sources of trials in the project; return the names of any that remain."""
        for job in self.state.jobs:
            # Cancel jobs first. If a job has already ended, its data source is deleted below.
            self.site.cancel(job)
        ours = [item for item in self.site.in_project(self.project_id) if self._is_ours(item)]
        undeleted = []
        for remote in ours:
            try:
                self.site.delete(remote.luid)
            except RefusedError:
                undeleted.append(remote.name)
        return undeleted

    def _is_ours(self, remote: RemoteDatasource) -> bool:
        """Whether a trial has made a data source, judging by the name, and by the tag or owner."""
        tags: Collection[str] = remote.tags
        is_tagged = any(tag == TAG or tag.startswith(TAG_PREFIX) for tag in tags)
        is_own = remote.owner_id == self.site.user_id
        return _NAME.fullmatch(remote.name) is not None and (is_tagged or is_own)

"""The record of a site's behaviour where Tableau's documents are unclear or contradictory."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import obstore
from pydantic import Field, ValidationError

from tableau_pipeline.core.drift import JobKind
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.objects.stores import StoreError, store_at, store_errors

# A lag is the time from the end of a job to the time stamp that the job gives the data source. Two
# lags count as equal if they differ by at most this many seconds.
_LAG_TOLERANCE = 2


class SiteFacts(Frozen):
    """The observed behaviour of a site. Facts that nothing has observed yet have their defaults.

    Attributes:
        release: the server's release at the observations. Another release may behave differently.
        learnt_at: the time of the last new fact.
        replaces: whether the publish mode REPLACE keeps the metadata.
        takes_bare_stars: whether the site accepts a `.hyper` file of several tables without a
            `.tds`.
        orders_blocks: whether the site sorts the blocks of an upload by their numbers.
        loses_jobs: whether the server forgets a job right after the job's end.
        updates_move_stamp: whether a data update changes the time stamp `updatedAt`.
        noted_still: whether the last update whose job the server had forgotten left the time stamp
            unchanged. This is a single observation, so the job may have failed.
        stamp_lag: the longest lag, in seconds, that was observed more than once.
        noted_lags: maps a kind of job to the lag of the last job, in seconds. This is a single
            observation, so another user may have changed the time stamp.
        update_revisions: the number of revisions that an update makes, observed more than once.
        noted_revisions: the number of revisions that the last update made. This is a single
            observation, so another user may have published.
        reads_jobs: maps LUIDs of users to whether the user may query jobs.
        lists_jobs: maps LUIDs of users to whether the user may list jobs.
        refused_others: maps LUIDs of users to the time when the server refused an update because
            another user owns the data source.
        job_words: the kind of job for each word that names a type of jobs in the site's job list.
    """

    release: str = ""
    learnt_at: datetime | None = None
    replaces: bool | None = None
    takes_bare_stars: bool | None = None
    orders_blocks: bool | None = None
    loses_jobs: bool | None = None
    updates_move_stamp: bool | None = None
    noted_still: bool = False
    stamp_lag: float = 0
    noted_lags: Mapping[str, float] = Field(default_factory=dict)
    update_revisions: int = 0
    noted_revisions: int = 0
    reads_jobs: Mapping[str, bool] = Field(default_factory=dict)
    lists_jobs: Mapping[str, bool] = Field(default_factory=dict)
    refused_others: Mapping[str, datetime] = Field(default_factory=dict)
    job_words: Mapping[str, JobKind] = Field(default_factory=dict)

    def revisions_of(self, *, is_update: bool) -> Collection[int]:
        """Return the numbers of revisions that one of our changes may make."""
        return {0, self.update_revisions} if is_update else {1}

    @property
    def peculiarities(self) -> Sequence[str]:
        """Phrases that describe how this site differs from most sites."""
        phrases = {
            "Replace does not keep metadata: they are published again": self.replaces is False,
            "several tables are published with a model": self.takes_bare_stars is False,
            "jobs are gone after their end": self.loses_jobs,
            "updates do not move the time stamp": self.updates_move_stamp is False,
            f"time stamps follow jobs by {self.stamp_lag:.0f} s": self.stamp_lag >= 1,
            "updates make revisions": self.update_revisions > 0,
            "updates are for owners only": self.refused_others,
            "a user may not ask for jobs": False in self.reads_jobs.values(),
            "a user may not list jobs": False in self.lists_jobs.values(),
        }
        return [phrase for phrase, is_so in phrases.items() if is_so]


class SiteRecord:
    """The file with the facts about a site. All refreshes that use the same store share this file.

    The facts only save refreshes from attempts that would fail. If facts are lost, or a concurrent
    refresh overwrites them, later refreshes find them out again.

    Args:
        place: the folder of the files, or the folder's URL in an object store.
        server: the URL of the server.
        site: the content URL of the site.
        release: the current release of the server.
    """

    def __init__(self, place: Path | str, *, server: str, site: str, release: str) -> None:
        digest = hashlib.sha256(f"{server.casefold()}\n{site}".encode()).hexdigest()[:32]
        self._place, self._file, self._release = place, f"{digest}.json", release
        self.facts = self._read()

    def _read(self) -> SiteFacts:
        with (
            suppress(FileNotFoundError, ValidationError),
            store_errors("Reading", f"{self._place}/{self._file}", may_lack=True),
        ):
            content = bytes(obstore.get(store_at(self._place), self._file).bytes())
            facts = SiteFacts.model_validate_json(content)
            if facts.release == self._release:
                return facts
        # Start without facts, because an upgrade of the server may have changed any fact.
        return SiteFacts(release=self._release)

    def knows_lag(self, kind: JobKind, lag: float) -> bool:
        """Note the lag after a job, and return whether such a lag is the site's usual behaviour.

        Two equal lags in a row after one kind of job are the site's behaviour. A single lag may
        come from a change by a user.
        """
        if lag <= self.facts.stamp_lag:
            return True
        noted = self.facts.noted_lags.get(kind, 0)
        is_known = noted > 0 and abs(noted - lag) <= _LAG_TOLERANCE
        self.learn(noted_lags={kind: lag}, **({"stamp_lag": lag} if is_known else {}))
        return is_known

    def forget_noted(self, kind: JobKind) -> None:
        """Forget the single observations that the last job of this kind did not repeat."""
        if self.facts.noted_lags.get(kind):
            self.learn(noted_lags={kind: 0})
        if kind == "update" and self.facts.noted_revisions:
            self.learn(noted_revisions=0)

    def learn(self, **seen: Any) -> None:
        """Add facts and store them. Merge a mapping with the stored mapping."""
        facts = self.facts.model_dump()
        if all(_holds(facts[name], value) for name, value in seen.items()):
            return
        # Read the facts again, because another refresh may have stored facts meanwhile.
        facts = self._read().model_dump()
        for name, value in seen.items():
            facts[name] = {**facts[name], **value} if isinstance(value, Mapping) else value
        facts["learnt_at"] = datetime.now(UTC)
        self.facts = SiteFacts.model_validate(facts)
        with suppress(StoreError), store_errors("Writing", f"{self._place}/{self._file}"):
            text = json.dumps(self.facts.model_dump(mode="json"), indent=1)
            obstore.put(store_at(self._place), self._file, text.encode())


def _holds(known: Any, value: Any) -> bool:
    if isinstance(value, Mapping):
        return value.items() <= known.items()
    return known == value

"""The record of how a site behaves where Tableau's documents are unclear or contradictory."""

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

# Two lags of one site count as equal if they differ by at most this many seconds.
_LAG_TOLERANCE = 2


class SiteFacts(Frozen):
    """The observed behaviour of a site; None where nothing was observed yet.

    Attributes:
        release: the server's release at the time; another release may behave differently.
        learnt_at: when a fact was last added.
        replaces: whether the publish mode Replace works.
        takes_bare_stars: whether the site accepts a `.hyper` file of several tables without `.tds`.
        orders_blocks: whether the site puts numbered blocks of an upload in order.
        loses_jobs: whether the server has forgotten a job right after the job ended.
        updates_move_stamp: whether a data update moves the time stamp `updatedAt`.
        noted_still: whether the last update whose job was gone left the time stamp where it was.
            This was observed once, so the job may have failed.
        stamp_lag: the seconds by which the time stamp follows a job, observed more than once.
        noted_lags: the seconds by which the time stamp followed the last job of a kind; the keys
            are kinds of jobs. This was observed once, so another user may have caused it.
        update_revisions: the number of revisions that a data update makes, observed more than once.
        noted_revisions: the number of revisions that the last update made. This was observed once,
            so another user may have published.
        reads_jobs: whether a user may query jobs; the keys are LUIDs of users.
        lists_jobs: whether a user may list jobs; the keys are LUIDs of users.
        refused_others: when the server refused an update because another user owns the data source;
            the keys are the LUIDs of the users who sent the update.
        job_words: the kinds of jobs; the keys are the words for these kinds in the site's lists.
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
        """Return the possible numbers of revisions that one change of ours makes."""
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
    """The file with the facts about a site, which all refreshes in this store share.

    The file only saves attempts. If facts are lost, or overwritten by a concurrent refresh, they
    are learnt again.

    Args:
        place: the folder of these files, or the URL of that folder in an object store.
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
        # Start without facts: an upgrade of the server may have changed any of them.
        return SiteFacts(release=self._release)

    def knows_lag(self, kind: JobKind, lag: float) -> bool:
        """Whether time stamps are known to come so late after jobs of a kind here; note the lag.

        A lag that was noted twice in a row is the site's. A single one may be a change by a user.
        """
        if lag <= self.facts.stamp_lag:
            return True
        noted = self.facts.noted_lags.get(kind, 0)
        is_known = noted > 0 and abs(noted - lag) <= _LAG_TOLERANCE
        self.learn(noted_lags={kind: lag}, **({"stamp_lag": lag} if is_known else {}))
        return is_known

    def forget_noted(self, kind: JobKind) -> None:
        """Forget what was noted once about jobs of a kind, as the last job did not repeat it."""
        if self.facts.noted_lags.get(kind):
            self.learn(noted_lags={kind: 0})
        if kind == "update" and self.facts.noted_revisions:
            self.learn(noted_revisions=0)

    def learn(self, **seen: Any) -> None:
        """Add facts and store them; the entries of a mapping are added to the stored mapping."""
        facts = self.facts.model_dump()
        if all(_holds(facts[name], value) for name, value in seen.items()):
            return
        # Read them again, as another refresh may have stored other facts meanwhile.
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

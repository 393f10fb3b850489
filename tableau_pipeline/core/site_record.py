"""What a site was seen to do, where Tableau's documents leave it open or contradict each other."""

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


class SiteFacts(Frozen):
    """What is known of a site; None where nothing was seen yet.

    Attributes:
        release: of the server, when it was learnt. Another release may do other things.
        learnt_at: when the last of it was learnt.
        replaces: whether the publish mode Replace works.
        takes_bare_stars: whether it takes a `.hyper` file of several tables without a `.tds`.
        loses_jobs: whether it was seen to know nothing of a job after its end.
        updates_move_stamp: whether `updatedAt` moves on a data update.
        stamp_lag: the seconds by which it was seen to follow jobs, more than once.
        noted_lags: the seconds by which it followed the last job of a kind, if it did; or another
            user changed something then.
        update_revisions: the number of revisions that data updates make, as seen more than once.
        noted_revisions: the number that the last one made; or another user published then.
        reads_jobs: by the LUID of a user, whether this user may ask for jobs.
        lists_jobs: by the LUID of a user, whether this user may list them.
        refused_others: by the LUID of a user, when an update of a data source was refused that
            this user does not own.
        job_words: the words for kinds of jobs in its lists.
    """

    release: str = ""
    learnt_at: datetime | None = None
    replaces: bool | None = None
    takes_bare_stars: bool | None = None
    loses_jobs: bool | None = None
    updates_move_stamp: bool | None = None
    stamp_lag: float = 0
    noted_lags: Mapping[str, float] = Field(default_factory=dict)
    update_revisions: int = 0
    noted_revisions: int = 0
    reads_jobs: Mapping[str, bool] = Field(default_factory=dict)
    lists_jobs: Mapping[str, bool] = Field(default_factory=dict)
    refused_others: Mapping[str, datetime] = Field(default_factory=dict)
    job_words: Mapping[str, JobKind] = Field(default_factory=dict)

    def revisions_of(self, *, is_update: bool) -> Collection[int]:
        """The possible numbers of revisions of a change of ours."""
        return {0, self.update_revisions} if is_update else {1}

    @property
    def peculiarities(self) -> Sequence[str]:
        """What refreshes do in another way here than on most sites, in sentences."""
        told = {
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
        return [text for text, is_so in told.items() if is_so]


class SiteRecord:
    """The file of a site's facts, which all refreshes in this store share.

    It saves attempts, and proves nothing: what is lost of it, or overwritten by another refresh at
    the same time, is learnt again.

    Args:
        place: the folder of such files, or its URL in an object store.
        server: the URL of the server, and the site's content URL.
        release: that the server has now.
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
        # An upgrade may have changed all of it.
        return SiteFacts(release=self._release)

    def forget_noted(self, kind: JobKind) -> None:
        """Forget what was odd about the last job of a kind: it was not the site."""
        if self.facts.noted_lags.get(kind):
            self.learn(noted_lags={kind: 0})
        if kind == "update" and self.facts.noted_revisions:
            self.learn(noted_revisions=0)

    def learn(self, **seen: Any) -> None:
        """Add facts; those in mappings are added to what these hold."""
        known = self.facts.model_dump()
        if all(_holds(known[name], value) for name, value in seen.items()):
            return
        # Others may have learnt something else meanwhile.
        known = self._read().model_dump()
        for name, value in seen.items():
            known[name] = {**known[name], **value} if isinstance(value, Mapping) else value
        known["learnt_at"] = datetime.now(UTC)
        self.facts = SiteFacts.model_validate(known)
        with suppress(StoreError), store_errors("Writing", f"{self._place}/{self._file}"):
            text = json.dumps(self.facts.model_dump(mode="json"), indent=1)
            obstore.put(store_at(self._place), self._file, text.encode())


def _holds(known: Any, value: Any) -> bool:
    if isinstance(value, Mapping):
        return value.items() <= known.items()
    return known == value

"""Derive the state of a data source from its records, without any effects."""

from collections.abc import Sequence
from dataclasses import dataclass

from tableau_pipeline.core.checkpoint import (
    Checkpoint,
    Claim,
    Closing,
    Former,
    Intent,
    Outcome,
    Record,
)

# Unknown outcomes belong here: if the server took the rows, their snapshots are still needed.
_LANDED = (None, Outcome.DONE, Outcome.LOST)


@dataclass(frozen=True, slots=True)
class History:
    """The records of a data source, in order.

    Attributes:
        number: the highest number of any refresh.
        claims: the claims that were not withdrawn; `closed` has the ids of those that have
            ended.
        checkpoint: the one with the highest number, in whatever order they were stored.
        intents: the intents of later refreshes, oldest first; of each, the record that knows
            most.
        former: the state in a record of an older format; None once there is a checkpoint.
    """

    number: int
    claims: tuple[Claim, ...]
    closed: frozenset[str]
    checkpoint: Checkpoint | None
    intents: tuple[Intent, ...]
    former: Former | None

    @property
    def open_claims(self) -> list[Claim]:
        """The claims that have not ended."""
        return [claim for claim in self.claims if claim.id not in self.closed]

    def published_version(self, model: str) -> int | None:
        """The newest version of a model that may be published; None if no record names one."""
        versions = (each for checkpoint in self._published for each in checkpoint.versions)
        return next((number for known, number in versions if known == model), None)

    @property
    def versions(self) -> set[tuple[str, int]]:
        """All snapshots that a refresh may have to compare with, by model and number."""
        return {version for checkpoint in self._published for version in checkpoint.versions}

    @property
    def _published(self) -> list[Checkpoint]:
        """The checkpoints that the server may hold, the newest first."""
        landed = [each.target for each in reversed(self.intents) if each.outcome in _LANDED]
        return [each for each in (*landed, self.checkpoint) if each]


def read_history(records: Sequence[Record]) -> History:
    """Order records, independent of the order in which they were stored."""
    closings = [each for each in records if isinstance(each, Closing)]
    withdrawn = {each.claim for each in closings if each.withdrawn}
    checkpoint = max(
        (each.checkpoint for each in closings if each.checkpoint),
        key=lambda each: each.refresh,
        default=None,
    )
    intents: dict[str, Intent] = {}
    for each in records:
        # A checkpoint closes all earlier requests, even those whose records were stored later.
        if not isinstance(each, Intent) or (checkpoint and each.refresh <= checkpoint.refresh):
            continue
        known = intents.get(each.request_id)
        if known is None or _knowledge(each) >= _knowledge(known):
            intents[each.request_id] = each
    formers = [each for each in records if isinstance(each, Former)]
    return History(
        number=max((each.refresh for each in records), default=0),
        claims=tuple(
            each for each in records if isinstance(each, Claim) and each.id not in withdrawn
        ),
        closed=frozenset(each.claim for each in closings),
        checkpoint=checkpoint,
        intents=tuple(sorted(intents.values(), key=lambda each: (each.refresh, each.step))),
        former=formers[-1] if formers and not checkpoint else None,
    )


def _knowledge(intent: Intent) -> tuple[bool, bool]:
    # Of two outcomes, the one with a job was read from the server, the other only given up.
    return intent.outcome is not None, intent.job_id is not None

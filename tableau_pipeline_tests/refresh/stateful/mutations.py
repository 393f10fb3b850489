"""Mutations of the product. Each removes one safeguard of a refresh; histories must notice this."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple
from unittest import mock

from tableau_pipeline.core.checkpoint import Window
from tableau_pipeline.core.fields import MetadataPolicy
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.metadata.merge import CERTIFIED, OWNER, Merge, Values, merge
from tableau_pipeline.metadata.tds import Tds, TdsEdit
from tableau_pipeline.metadata.written import WrittenValues
from tableau_pipeline.outcome import Accept, Code
from tableau_pipeline.publishing import job_list
from tableau_pipeline.refresh.claim import HeldClaim
from tableau_pipeline.refresh.decide import Facts, Options, Refuse
from tableau_pipeline.refresh.declared_metadata import DeclaredMetadata
from tableau_pipeline.refresh.effects import Effects
from tableau_pipeline.refresh.limits import _Changes
from tableau_pipeline.refresh.observe import Observer
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.publish import Publisher
from tableau_pipeline.refresh.reconcile import Reconciler, Reconciliation
from tableau_pipeline.refresh.refresh import _Phases, plan
from tableau_pipeline.refresh.row_security import secured
from tableau_pipeline.refresh.saved_plan import SavedPlan
from tableau_pipeline.refresh.send import Sender
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline_tests.refresh.stateful import history
from tableau_pipeline_tests.refresh.stateful.checks.require import CheckFailed
from tableau_pipeline_tests.refresh.stateful.journals import MemoryStore
from tableau_pipeline_tests.refresh.stateful.replay import Case, Failure, play
from tableau_pipeline_tests.refresh.support import asked

LOG = logging.getLogger(__name__)
# The most histories that are played, besides the recorded one, until one fails.
_MOST = 300
_REFRESH = "tableau_pipeline.refresh"


class Mutation(NamedTuple):
    """The removal of a safeguard.

    Attributes:
        seed: the seed of a history that fails without the safeguard. The test plays this
            history first, because a search takes long.
        without: returns a context manager, in whose context refreshes lack the safeguard.
    """

    seed: int
    without: Callable[[], AbstractContextManager]


def _without(owner: type, name: str, answer: Any = None) -> AbstractContextManager:
    """Remove a function. Its callers get the answer instead."""
    return mock.patch.object(owner, name, return_value=answer)


def _with_many_winners() -> AbstractContextManager:
    """Let every writer believe that it has created the record with its number."""

    def careless(store: MemoryStore, key: str, content: bytes) -> bool:
        store.replace(key, content)
        return True

    return mock.patch.object(MemoryStore, "put", careless)


def _without_refusals() -> AbstractContextManager:
    def lenient(setup: Setup, options: Options) -> Planned:
        return plan(setup, replace(options, accept=frozenset(Accept)))

    return mock.patch.object(asked, "plan", lenient)


def _without_conflicts() -> AbstractContextManager:
    def careless(*sides: Any, on_conflict: str) -> Merge:
        return replace(merge(*sides, on_conflict="replace"), conflicts=())

    return mock.patch(f"{_REFRESH}.declared_metadata.merge", careless)


def _with_report(changed: Callable[[Planned], Planned]) -> AbstractContextManager:
    """Let dry runs return a changed report."""
    return mock.patch.object(asked, "plan", lambda *args: changed(plan(*args)))


def _without_metadata(planned: Planned) -> Planned:
    return replace(planned, metadata=replace(planned.metadata, held=None, on_server=None))


def _without_policy() -> AbstractContextManager:
    """Let declared properties win every conflict."""
    merged = DeclaredMetadata.of_properties

    def careless(declared: DeclaredMetadata, *sides: Any, **more: Any) -> Merge:
        declaration = replace(declared.declaration, metadata=MetadataPolicy("replace"))
        return merged(replace(declared, declaration=declaration), *sides, **more)

    return mock.patch.object(DeclaredMetadata, "of_properties", careless)


def _always_set(changes: Callable[[DeclaredMetadata], Values]) -> AbstractContextManager:
    """Set declared properties of a data source, even those that a user has changed."""
    merged = DeclaredMetadata.of_properties

    def careless(declared: DeclaredMetadata, published: Values, **more: Any) -> Merge:
        result = merged(declared, published, **more)
        return replace(result, changes={**result.changes, **changes(declared)})

    return mock.patch.object(DeclaredMetadata, "of_properties", careless)


def _owner(declared: DeclaredMetadata) -> Values:
    owner = declared.declaration.owner
    return {OWNER: owner} if owner else {}


def _with_certification_of_people() -> AbstractContextManager:
    """Let every certification pass for our own."""
    read = WrittenValues.read
    return mock.patch.object(WrittenValues, "read", lambda *args: {CERTIFIED: "yes", **read(*args)})


def _with_all_equal() -> AbstractContextManager:
    set_properties = DeclaredMetadata.set_properties

    def careless(*args: Any, equal: bool | None, **more: Any) -> Any:
        return set_properties(*args, equal=equal is not False, **more)

    return mock.patch.object(DeclaredMetadata, "set_properties", careless)


def _without_calculations_of_people() -> AbstractContextManager:
    edited = Tds.edited

    def careless(*args: Any) -> bytes:
        return re.sub(rb'<column caption="Work.*?</column>', b"", edited(*args), flags=re.DOTALL)

    return mock.patch.object(Tds, "edited", careless)


def _with_one_past() -> AbstractContextManager:
    written = DeclaredMetadata.written_by
    return mock.patch.object(DeclaredMetadata, "written_by", lambda *args: written(*args)[:1])


def _with_one_road() -> AbstractContextManager:
    roads = Publisher._roads
    return mock.patch.object(Publisher, "_roads", lambda *args: islice(roads(*args), 1))


def _with_known_jobs_alone() -> AbstractContextManager:
    may_be_of = job_list.jobs_possibly_of

    def careless(name: str, items: Sequence[Any], words: Any) -> Sequence[Any]:
        jobs = may_be_of(name, [job for job in items if job.title], words) or ()
        return [job for job in jobs if job.kind]

    return mock.patch("tableau_pipeline.publishing.site.job_list.jobs_possibly_of", careless)


def _without_filters() -> AbstractContextManager:
    """Let publishes drop the filters that they find."""

    def careless(plan: Any, facts: Facts) -> Any:
        kept = secured(plan, facts)
        is_gone = isinstance(kept, Refuse) and kept.refusals[0].code is Code.FILTER_GONE
        return kept if is_gone else plan

    return mock.patch(f"{_REFRESH}.planning.secured", careless)


_IMPATIENT = replace(history.TIMEOUTS, listing=0)


# The safeguards by name. The last look before a request is not among the safeguards: histories
# excuse what other users do at that moment. `test_sending.py` fails without that look.
MUTATIONS: dict[str, Mutation] = {
    "claim": Mutation(1804, lambda: mock.patch(f"{_REFRESH}.claim.live_claim", return_value=None)),
    "fence": Mutation(0, lambda: _without(HeldClaim, "check_fence")),
    "hold": Mutation(1253, lambda: mock.patch(f"{_REFRESH}.refresh.check_not_held")),
    "limits of a saved plan": Mutation(3999, lambda: _without(SavedPlan, "moved", ())),
    "limits of an approval": Mutation(
        2377, lambda: mock.patch(f"{_REFRESH}.limits._outside", return_value=())
    ),
    "limit of rows that change": Mutation(31, lambda: _without(_Changes, "problem")),
    "filters of rows in a publish": Mutation(110, _without_filters),
    "filters of rows that are gone": Mutation(
        9, lambda: mock.patch(f"{_REFRESH}.row_security._gone", return_value=None)
    ),
    "job window": Mutation(15815, lambda: _without(Window, "covers", True)),
    "guard without a base": Mutation(67, lambda: _without(Observer, "_counted", {})),
    "wait for an unknown sending": Mutation(
        1066, lambda: mock.patch(f"{_REFRESH}.recover._wait_for_unknown")
    ),
    "one winner for each number": Mutation(1614, _with_many_winners),
    "look at the record before": Mutation(3125, lambda: _without(StoredJournal, "_has", True)),
    "heartbeat": Mutation(2836, lambda: _without(StoredJournal, "_is_silent", True)),
    "saved work of other users": Mutation(2658, lambda: mock.patch(f"{_REFRESH}.publish.back_up")),
    "other key of a data source": Mutation(
        313, lambda: mock.patch(f"{_REFRESH}.ownership.other_key", return_value=None)
    ),
    "root in the key of an environment": Mutation(
        1177, lambda: mock.patch("tableau_pipeline.core.declaration.key_below", lambda key, _: key)
    ),
    "other environment of a data source": Mutation(
        2873, lambda: mock.patch(f"{_REFRESH}.ownership.root_of", return_value="")
    ),
    "whole publish if a base is damaged": Mutation(
        1857, lambda: _without(Builder, "_find_damage", False)
    ),
    "refusals of a dry run": Mutation(3, _without_refusals),
    "rows that a dry run tells": Mutation(
        0, lambda: _with_report(lambda planned: replace(planned, deltas=()))
    ),
    "metadata that a dry run tells": Mutation(2, lambda: _with_report(_without_metadata)),
    "question before an adoption": Mutation(
        3574, lambda: mock.patch(f"{_REFRESH}.decide._dropped", return_value=[])
    ),
    "conflicts of metadata": Mutation(463, _without_conflicts),
    "refusal of conflicts": Mutation(
        59973, lambda: mock.patch(f"{_REFRESH}.decide.conflict_phrases", return_value=[])
    ),
    "metadata that were last written": Mutation(494, lambda: _without(WrittenValues, "read", {})),
    "calculations of people": Mutation(2452, _without_calculations_of_people),
    "calculations of columns that go": Mutation(
        208, lambda: _without(DeclaredMetadata, "_broken", ())
    ),
    "folders": Mutation(1122, lambda: _without(TdsEdit, "_set_folder")),
    "permissions as people set them": Mutation(2756, _without_policy),
    "owner as people set it": Mutation(2779, lambda: _always_set(_owner)),
    "certification that people withdrew": Mutation(
        1266,
        lambda: _always_set(
            lambda declared: {CERTIFIED: "yes"} if declared.declaration.certify else {}
        ),
    ),
    "certification of people": Mutation(3604, _with_certification_of_people),
    "comparison before it is certified": Mutation(2592, _with_all_equal),
    "metadata before an unknown sending": Mutation(5907, _with_one_past),
    "effects of jobs that cannot be asked for": Mutation(975, lambda: _without(Effects, "of")),
    "other ways to publish": Mutation(993, _with_one_road),
    "time for lists": Mutation(1697, lambda: mock.patch.object(history, "TIMEOUTS", _IMPATIENT)),
    "whole file where updates are refused": Mutation(
        1849, lambda: _without(_Phases, "may_go_on", False)
    ),
    "whole files where an update would not show": Mutation(
        502, lambda: mock.patch(f"{_REFRESH}.planning.whole_files", return_value=None)
    ),
    "second look at what a site does": Mutation(
        1397, lambda: _without(Sender, "_is_of_the_site", False)
    ),
    "jobs of unknown kinds": Mutation(7385, _with_known_jobs_alone),
    "reconciliation of an unverified base": Mutation(
        743, lambda: _without(Reconciler, "compare_rows", Reconciliation())
    ),
}


def seeds_of(name: str) -> Sequence[int]:
    """The seeds of the histories that are played until one fails without a safeguard."""
    return list(dict.fromkeys([MUTATIONS[name].seed, *range(_MOST)]))


def first_failure(name: str, seeds: Iterable[int]) -> Failure | None:
    """The first history in which a check fails without a safeguard; None if no check fails.

    Other errors do not count, because the mutation itself may cause them.
    """
    with MUTATIONS[name].without():
        for failure in filter(None, (play(Case.of(seed)) for seed in seeds)):
            if isinstance(failure.error, CheckFailed):
                return failure
            LOG.warning("%s", failure)
    return None

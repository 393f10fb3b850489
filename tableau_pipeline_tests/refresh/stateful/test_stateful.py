"""Random histories: each successful refresh publishes exactly the rows of its models.

docs/explanation/histories.md explains them. A failure names its seed;
`STATEFUL_SEED=7 pytest <this file>` replays the history of seed 7.
"""

import os
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import pytest

from tableau_pipeline_tests.refresh.stateful import mutations
from tableau_pipeline_tests.refresh.stateful.checks.require import CheckFailed
from tableau_pipeline_tests.refresh.stateful.fresh import LEDGER, commit, fresh_seeds, with_entry
from tableau_pipeline_tests.refresh.stateful.mutations import MUTATIONS, first_failure, seeds_of
from tableau_pipeline_tests.refresh.stateful.replay import Case, Failure, play

SEED = os.environ.get("STATEFUL_SEED")
PARTS = 4
# Fresh histories that once failed: the digest of the history that the seed draws, and the cause of
# the failure.
REGRESSIONS = {
    617390543: ("8a2f9bd0", "a Replace that dropped a caption while another user changed rows"),
    278812961: ("b2eb93c8", "an owner declared by a deployment that takes the data source over"),
    493430300: ("9c339b36", "a refusal that names work on a column to be removed"),
    44573387: ("01bb9fea", "metadata that another deployment dropped in a publish that failed"),
    204522139: ("b7203b24", "a caption of a data source that was taken over, and moved meanwhile"),
    22856686: ("b08fc3f3", "records that this release cannot read"),
    822932028: ("ae48456c", "a second data source, published because ours was renamed meanwhile"),
    668095213: ("e57cd065", "the late time stamp of an update after a publish"),
    48861540: ("d6eec5bf", "late time stamps that counted as missing on a site without jobs"),
    764468196: ("59645778", "a lag that was forgotten because a later stamp had not come yet"),
    149985938: ("16e5bf8c", "a lag that was never noted because stamps came after the refresh"),
    23484423: ("50603ef3", "a request for each removed record because a listing was late"),
    757835992: ("f6897684", "a vanished failed job that was to create a data source"),
    352007571: ("3ade7925", "a data source without the tag of a deployment"),
    673334992: (
        "748fbef9",
        "a caption that a user removed while it was unknown what was published",
    ),
    459592939: ("4658d316", "the rows of a data source that another user had published before"),
    366970094: ("0341ff6e", "two publishes that lists show late"),
    605153556: ("0b510da5", "metadata that a publish with a hidden job may not have set"),
    94651119: ("1f1e1bba", "a saved plan whose rows a disk has lost"),
    279341644: ("623337a4", "a hidden job that outlives the time limits of jobs"),
    341715459: (
        "fbdca599",
        "two holders of the claim, as old records were gone and a listing was late",
    ),
    667061576: ("178ce34c", "a create in vain because another declaration had taken the name"),
    246964168: ("5559f45f", "a removal by a person after a publish whose job is hidden"),
    88691414: ("90f8dc56", "edits that cannot be known, after a lost create and a merge"),
    959598609: ("e5dd38a4", "other users' rows that changed unseen after they were counted"),
    446865478: ("205a1b16", "metadata in a publish that missed its data source, renamed meanwhile"),
    374923427: ("96f0ede2", "a late time stamp between a dry run and the refresh after it"),
    471555785: ("899603f5", "declared metadata that a takeover dropped before it was killed"),
    35: ("a5490895", "an update that was sent again after its answer was lost"),
    903: ("eb488b95", "a saved plan whose rows a disk has damaged"),
    190: ("b44746ce", "an approval that forbade the repair of an approved update"),
}
# A history takes about eight seconds of a processor. FEW histories run in `make test`, and MANY in
# CI. CI also runs FRESH histories, whose seeds derive from the commit.
FEW, MANY, FRESH = 4, 24, 24
# In _ENOUGH histories or more, the share of refused undisturbed refreshes must be below
# _MOST_REFUSED.
_ENOUGH, _MOST_REFUSED = 20, 0.25
pytestmark = pytest.mark.timeout(3600)
in_parts = pytest.mark.parametrize(
    "part",
    [pytest.param(n, marks=pytest.mark.xdist_group(f"histories {n}")) for n in range(PARTS)],
)
not_alone = pytest.mark.skipif(SEED is not None, reason="STATEFUL_SEED asks for one history alone")


@not_alone
@in_parts
@pytest.mark.parametrize(
    ("first", "last"),
    [
        pytest.param(0, FEW, id="few"),
        pytest.param(FEW, MANY, id="many", marks=pytest.mark.slow),
    ],
)
def test_histories(part: int, first: int, last: int):
    """Prevents: a successful refresh leaves a data source that differs from its models."""
    _check_histories(range(first + part, last, PARTS))


@not_alone
@pytest.mark.parametrize("seed", REGRESSIONS, ids=str)
def test_seeds_still_draw_the_histories_that_once_failed(seed: int):
    """Prevents: a new draw silently turns the recorded seeds into other histories."""
    digest, failed_for = REGRESSIONS[seed]
    assert Case.of(seed).digest() == digest, (
        f"seed {seed} no longer draws the history that failed for {failed_for}: give the new draw "
        "a generator of its own, as `Case.of` does, or look for a seed that fails without the "
        "correction of that time; if a declaration only got a new field, renew the digest"
    )


@not_alone
@pytest.mark.slow
@pytest.mark.parametrize("seed", REGRESSIONS, ids=str)
def test_histories_that_once_failed(seed: int):
    """Prevents: a bug that a fresh history has once found comes back."""
    _check_histories([seed])


@not_alone
@in_parts
@pytest.mark.slow
def test_fresh_histories(part: int):
    """Prevents: a bug that the histories with fixed seeds never meet stays hidden."""
    _check_histories([*islice(fresh_seeds(commit()), part, FRESH, PARTS)])


def test_the_ledger_adds_up():
    """Prevents: the ledger loses the counts of earlier histories."""
    ledger = with_entry("", "| a1 | 1,000 | 0.1 | 7 |", {"status: move, update": 999})
    ledger = with_entry(ledger, "| b2 | 8 | 0.0 |  |", {"status: move, update": 2})
    assert "| a1 | 1,000 | 0.1 | 7 |\n| b2 | 8 | 0.0 |  |\n" in ledger
    assert "* Status: move, update 1,001.\n" in ledger
    kept = LEDGER.read_text("utf-8")
    totals = kept[kept.index("* Event") : kept.index("* Never met")]
    assert totals in with_entry(kept, "| c3 | 0 | 0.0 |  |", {})


@pytest.mark.skipif(SEED is None, reason="STATEFUL_SEED names no history")
def test_one_history():
    """Replays one history."""
    _check_histories(range(int(SEED or 0), int(SEED or 0) + 1))


@not_alone
def test_safeguards_exist():
    """Prevents: a safeguard was renamed, so its mutation can no longer remove it."""
    for mutation in MUTATIONS.values():
        with mutation.without():
            pass


@not_alone
def test_only_a_check_misses_a_safeguard(monkeypatch: pytest.MonkeyPatch):
    """Prevents: an error of a mutation itself counts as a history that notices the mutation."""
    errors = [TypeError("an argument is missing"), None, CheckFailed("green, but it is wrong")]

    def play(case: Case) -> Failure | None:
        error = errors[case.seed]
        return Failure(case, error, []) if error else None

    monkeypatch.setattr(mutations, "play", play)
    assert first_failure("claim", [0, 1]) is None
    failure = first_failure("claim", [0, 1, 2])
    assert failure
    assert failure.case.seed == 2


@not_alone
@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in MUTATIONS]
)
def test_safeguards_are_missed(name: str, record_property):
    """Prevents: histories do not notice that a refresh lacks one of its safeguards."""
    seeds = seeds_of(name)
    failure = first_failure(name, seeds)
    assert failure, f"{len(seeds)} histories pass without the {name}"
    seed = failure.case.seed
    record_property("histories", seeds.index(seed) + 1)
    print(f"{name}: missed by the history of seed {seed}: {failure.error}")  # noqa: T201


def _check_histories(seeds: Sequence[int]) -> None:
    tally: Counter[str] = Counter()
    for seed in seeds:
        if failure := play(Case.of(seed), tally):
            pytest.fail(str(failure), pytrace=False)
    refused = tally["refused"] / max(tally["refreshes"], 1)
    counts = {name: count for name, count in tally.items() if "refused" in name or "change" in name}
    print(f"{len(seeds)} histories, {refused:.0%} refused at first: {counts}")  # noqa: T201
    # A product that refuses everything must not pass.
    assert len(seeds) < _ENOUGH or refused < _MOST_REFUSED

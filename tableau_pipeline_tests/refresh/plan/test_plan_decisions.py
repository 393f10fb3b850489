from collections.abc import Callable
from dataclasses import replace

import pytest

from tableau_pipeline.core.checkpoint import Cutoff, PublishMode, TableContent
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.hyper.tables import Column, Relationship
from tableau_pipeline.refresh.plan import (
    Accept,
    Changed,
    Facts,
    NoChange,
    Options,
    Plan,
    Publish,
    Update,
    decide,
)
from tableau_pipeline_tests.refresh.support.states import (
    COLUMNS,
    NOTHING,
    OURS,
    REMOTE,
    SMALL,
    checkpoint,
    decided,
    declaration,
    desired,
    metadata,
    published,
    table,
)

CREATE, REPLACE, OVERWRITE = PublishMode.CREATE, PublishMode.REPLACE, PublishMode.OVERWRITE
CHANGED = desired(orders=table(hash_sum=8))
ONE_FOR_ONE = "new content in orders: orders -1 +1 rows"
WIDER = desired(orders=table(columns=(*COLUMNS, Column("price", "double"))))


def test_our_tag_without_a_record_replaces_the_data_only():
    """Prevents: a lost event log drops the calculated fields of analysts, or blocks for ever."""
    why = "no record shows what it holds"
    known = published(checkpoint=None, left=frozenset(), distrust=why)
    known = replace(known, checkpoint=None)
    assert decided(known) == Publish(REPLACE, f"in full: {why}")
    assert decided(known, Accept.OVERWRITE) == Publish(
        OVERWRITE, "in full, as asked (accept: overwrite)"
    )


def test_equal_fingerprints_are_no_change():
    """Prevents: an unchanged model is shipped, or a changed one is not."""
    reason = "every table's fingerprint equals that of the last refresh"
    assert decided(published()) == NoChange(reason)


@pytest.mark.parametrize(
    "wanted",
    [
        table(rows=101),
        table(hash_sum=8),
        table(content=Fingerprint(rows=100, hash_sum=7, algorithm="older")),
    ],
    ids=["rows", "hash sum", "algorithm of hashes"],
)
def test_each_part_of_the_content_counts(wanted: TableContent):
    """Prevents: a change that shows in one part of the fingerprint only passes for no change."""
    found = decided(published(), wanted=desired(orders=wanted))
    assert found == Update({"orders": None}, ONE_FOR_ONE)


@pytest.mark.parametrize("full", [False, True])
def test_order_of_columns(full: bool):
    """Prevents: columns that change places are compared by hashes that go by their order."""
    reordered = desired(orders=table(columns=COLUMNS[::-1]))
    assert decided(published(), wanted=reordered, full=full) == Publish(
        REPLACE, "in full: the order of columns changed in orders"
    )


@pytest.mark.parametrize("wanted", [CHANGED, desired()], ids=["changed", "equal"])
@pytest.mark.parametrize("full", [False, True])
def test_what_is_not_trusted_is_replaced(wanted: dict[str, TableContent], full: bool):
    """Prevents: an update, or nothing at all, over rows that are not those of the record."""
    why = "the last update failed on the server (full disk)"
    known = published(distrust=why)
    assert decided(known, wanted=wanted, full=full) == Publish(REPLACE, f"in full: {why}")


def test_cutoff_that_moves_over_no_rows_is_no_change():
    """Prevents: a rolling window ships the same rows every night."""
    cutoff = Cutoff(column="day", days=9, as_of="run", value="2025-01-01")
    moved = desired(orders=table(cutoff=cutoff))
    assert isinstance(decided(published(), wanted=moved), NoChange)


def test_full_and_accepted_overwrite_replace_the_metadata_too():
    """Prevents: metadata that a lost record left unfit stays for ever, whatever is asked for."""
    edited = published(metadata=metadata("digest-2"))
    assert decided(edited, Accept.OVERWRITE, full=True) == Publish(
        OVERWRITE, "in full, as asked (accept: overwrite)"
    )
    assert isinstance(decided(edited, Accept.OVERWRITE), NoChange)


@pytest.mark.parametrize("distrust", [None, "an earlier refresh was interrupted"])
def test_new_column_overwrites_under_additive(distrust: str | None):
    """Prevents: a column that a model gained is in the file but not in the metadata."""
    assert decided(published(distrust=distrust), wanted=WIDER) == Publish(
        OVERWRITE, "in full: orders.price is new (double)"
    )


def test_new_relationship_overwrites():
    """Prevents: a relationship that was declared later never reaches the data model."""
    plain = declaration("orders", "items")
    related = declaration(
        "orders", "items", relationships=(Relationship("items", "orders", (("id", "id"),)),)
    )
    assert decided(published(checkpoint(plain)), declared=related) == Publish(
        OVERWRITE, "in full: the declaration changed"
    )


def test_column_that_the_published_metadata_lacks():
    """Prevents: after somebody's overwrite, data with a column that no dashboard can ever see."""
    ids = frozenset({("Extract", "id")})
    known = published(metadata=metadata(columns=ids))
    assert decided(known) == Publish(
        OVERWRITE, 'in full: the published metadata lacks the column "name" of "Extract"'
    )
    more = ids | {("Extract", "name"), ("Extract", "Calculation_1")}
    assert isinstance(decided(published(metadata=metadata(columns=more))), NoChange)


def test_interrupted_schema_change_is_overwritten_again():
    """Prevents: after a crash the new columns are in the data, but the metadata never gets them."""
    record = checkpoint(tables=WIDER)
    ours = frozenset({("Extract", "id"), ("Extract", "name")})
    known = published(record, distrust="interrupted", metadata=metadata(columns=ours))
    found = decided(known, wanted=WIDER)
    assert isinstance(found, Publish)
    assert found.mode is OVERWRITE


def test_nothing_but_content_is_measured():
    """Prevents: a payload that is built for a decision which does not need it, or the reverse."""

    def changed(wanted: dict[str, TableContent], **options: bool) -> bool:
        facts = Facts(declaration(), declaration().digest(), wanted, published())
        return isinstance(decide(facts, Options(**options)), Changed)

    assert changed(CHANGED)
    assert not any([changed(desired()), changed(CHANGED, full=True), changed(WIDER)])


def test_what_the_server_converts_is_never_updated():
    """Prevents: an update of a file of which nobody here knows the tables."""
    facts = Facts(declaration(), declaration().digest(), CHANGED, published(), whole="as it is")
    found = decide(facts, Options())
    assert found == Publish(REPLACE, "in full: new content in orders; as it is")


@pytest.mark.parametrize(
    ("size", "grown", "rebase", "is_update"),
    [
        (100, 0, 1.0, True),
        (101, 0, 9.0, False),
        (60, 40, 1.0, True),
        (60, 41, 1.0, False),
        (10, 40, 0.5, True),
        (11, 40, 0.5, False),
        (100, 9900, 100.0, True),
    ],
)
def test_growth(size: int, grown: int, rebase: float, is_update: bool):
    """Prevents: a file that updates let grow without end, or one that is never updated."""
    known = published(checkpoint(size=100, grown=grown, updates=7))
    declared = declaration(rebase=rebase)
    found = decided(known, wanted=CHANGED, declared=declared, size=replace(SMALL, size=size))
    assert isinstance(found, Update) is is_update
    if isinstance(found, Publish):
        assert found.mode is REPLACE
        assert "larger than the whole file" in found.reason or f"rebase: {rebase:g}" in found.reason


@pytest.mark.parametrize(("cap", "is_update"), [(None, True), (8, True), (7, False)])
def test_cap_on_updates(cap: int | None, is_update: bool):
    """Prevents: a cap that is off by one, or that holds where none was declared."""
    known = published(checkpoint(updates=7))
    found = decided(known, wanted=CHANGED, declared=declaration(rebase_after=cap))
    assert isinstance(found, Update) is is_update
    if isinstance(found, Publish):
        assert f"7 updates since the file was last published whole (rebase_after: {cap})" in (
            found.reason
        )


@pytest.mark.parametrize(
    ("size", "pieces", "oversize", "expected"),
    [
        (1000, 0, "publish", "new content"),
        (1001, 0, "publish", "exceeds the limit of 0.00 MB for payloads"),
        (1001, 0, "split", "and it cannot be split below that"),
        (1001, 3, "split", "split, because the update of"),
    ],
)
def test_limit_of_payloads(size: int, pieces: int, oversize: str, expected: str):
    """Prevents: a payload that the server turns down, or a split that nobody declared."""
    measured = replace(SMALL, size=size, pieces=pieces)
    declared = declaration(oversize=oversize)
    found = decided(published(), wanted=CHANGED, declared=declared, size=measured)
    assert expected in found.reason
    assert isinstance(found, Update) is (size <= 1000 or pieces > 0)
    if isinstance(found, Update):
        assert found.pieces == max(pieces, 1)


def test_table_that_is_shipped_whole_is_named_with_the_reason():
    """Prevents: nobody learns why all rows go over the wire every night."""
    counts = {"orders": RowCounts(100, 101, whole="the snapshot that is published is gone")}
    found = decided(published(), wanted=CHANGED, size=replace(SMALL, counts=counts))
    assert isinstance(found, Update)
    assert found.tables == {"orders": "the snapshot that is published is gone"}
    assert "orders -100 +101 rows (whole: the snapshot that is published is gone)" in found.reason


@pytest.mark.parametrize(
    "change",
    [
        lambda: published(distrust="somebody was there"),
        lambda: published(checkpoint(updates=10**6), rows={}),
        lambda: published(metadata=metadata("digest-2")),
        lambda: published(remote=replace(REMOTE, name="Renamed", project_id="project-2")),
        lambda: published(remote=replace(REMOTE, tags=OURS | {"certified"})),
    ],
    ids=["distrust", "many updates", "edited", "moved", "tagged"],
)
def test_nothing_but_a_new_data_model_replaces_metadata(change: Callable):
    """Prevents: an overwrite, which drops the work of analysts, for the sake of rows."""
    for wanted in (desired(), CHANGED):
        found = decided(change(), wanted=wanted)
        assert not isinstance(found, Publish) or found.mode is REPLACE


def test_reasons_have_a_short_form():
    """Prevents: the web UI shows no word for a decision."""
    changed = decided(published(), wanted=CHANGED)
    plans: list[Plan] = [decided(NOTHING), decided(published()), changed]
    assert [plan.decision for plan in plans] == ["publish (create)", "no change", "update"]

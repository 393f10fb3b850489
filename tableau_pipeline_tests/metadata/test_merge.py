import random

from hypothesis import given
from hypothesis import strategies as st

from tableau_pipeline.metadata.merge import TAKEN, Values, merge, metadata_rows

CAPTION = ("field", "flights", "net", "caption")
FORMULA = ("calculation", "Margin", "formula")
FORMAT = ("calculation", "Margin", "format")
PATHS = [CAPTION, ("hierarchy", "Route", "fields"), FORMULA, FORMAT]


def made(values: dict[tuple[str, ...], str]) -> Values:
    # A calculation needs a formula: drop the format if the formula is missing.
    return {path: value for path, value in values.items() if path != FORMAT or FORMULA in values}


VALUES = st.dictionaries(st.sampled_from(PATHS), st.sampled_from("abc")).map(made)
POLICIES = st.sampled_from(["keep", "replace", "refuse", "accept"])
ACCESS = ("permission", "Analysts", "Read")
MARGIN_IS_TAKEN = ("calculation", "Margin", TAKEN)


@given(wanted=VALUES, written=st.lists(VALUES, max_size=2), found=VALUES, policy=POLICIES)
def test_any_three_sides(wanted, written, found, policy):
    # Prevents: an edit is lost, an unedited value stays old, or each refresh repeats a change.
    merged = merge(wanted, written, found, on_conflict=policy)
    after = {path: merged.changes.get(path, found.get(path)) for path in PATHS}
    reported = set(merged.conflicts)
    reported |= {FORMAT} if FORMULA in reported else set()
    for path in PATHS:
        want, here = wanted.get(path), found.get(path)
        lasts = [each.get(path) for each in written] or [None]
        if here not in lasts and here != want:
            assert after[path] == here or (policy == "replace" and path in reported)
        if after[path] != want and any(path in each for each in (wanted, *written)):
            assert path in reported or path in merged.kept
    assert all(found.get(path) == value for path, value in merged.kept.items())

    now = {path: value for path, value in after.items() if value is not None}
    assert now == made(now)  # Every format has its formula.
    again = merge(wanted, [merged.written], now, on_conflict=policy)
    assert not again.changes
    assert again.written == merged.written
    assert set(again.conflicts) == (set() if policy == "replace" else set(merged.conflicts))


@given(
    wanted=VALUES,
    written=VALUES,
    found=VALUES,
    access=st.tuples(*[st.sampled_from(["", "Allow", "Deny"])] * 3),
    taken=st.booleans(),
    policy=POLICIES,
)
def test_what_is_accepted_is_settled(wanted, written, found, access, taken, policy):
    """Prevents: an accepted conflict is reported again, or a later edit is not reported."""
    sides = [
        values | ({ACCESS: rule} if rule else {})
        for values, rule in zip((wanted, written, found), access, strict=True)
    ]
    wanted, written, found = sides
    found |= {MARGIN_IS_TAKEN: "[Calculation_7]"} if taken else {}
    before = merge(wanted, [written], found, on_conflict="keep")
    accepted = merge(wanted, [written], found, on_conflict="accept")
    assert (accepted.conflicts, accepted.changes) == ((), before.changes)
    now = {**found, **accepted.changes}
    now = {path: value for path, value in now.items() if value is not None}
    again = merge(wanted, [accepted.written], now, on_conflict=policy)
    assert (again.conflicts, again.changes) == ((), {})
    assert again.written == accepted.written
    if ACCESS in before.conflicts and ACCESS in wanted:
        other = "Deny" if now.get(ACCESS) != "Deny" and wanted[ACCESS] != "Deny" else "Other"
        changed = merge(wanted, [again.written], now | {ACCESS: other}, on_conflict="keep")
        assert ACCESS in changed.conflicts


@given(seed=st.integers(0, 2**32), policy=POLICIES)
def test_a_history(seed, policy):
    # Prevents: after some refreshes, the pipeline takes a person's value for its own.
    chance = random.Random(seed)
    wanted, written, found, theirs = {}, {}, {}, set()
    for _ in range(12):
        path = chance.choice(PATHS[:2])
        match chance.choice(["declare", "edit", "refresh"]):
            case "declare":
                wanted[path] = chance.choice("abc")
            case "edit":
                found[path] = chance.choice("xyz")
                theirs.add(path)
            case "refresh":
                merged = merge(wanted, [written], found, on_conflict=policy)
                reported = set(merged.conflicts)
                if policy == "refuse" and reported:
                    continue
                found.update(merged.changes)
                written = merged.written
                theirs -= reported if policy == "replace" else set()
                assert all(found[each] in "xyz" for each in theirs)
                assert all(found[each] == wanted[each] for each in set(wanted) - theirs)


@given(
    first=VALUES,
    declared=st.lists(st.tuples(VALUES, st.sampled_from(["as it stands", "drawn"])), max_size=4),
    policy=POLICIES,
)
def test_what_a_person_wrote_first_stays(first, declared, policy):
    """Prevents: a person's value is removed because a declaration once had the same value."""
    theirs, now, written = dict(first), dict(first), {}
    # A calculation under our internal name is always ours.
    theirs = {path: value for path, value in theirs.items() if path[0] != "calculation"}
    for values, kind in [*declared, ({}, "drawn")]:
        want = values | (theirs if kind == "as it stands" else {})
        merged = merge(want, [written], now, on_conflict=policy)
        if policy == "refuse" and merged.conflicts:
            continue
        now |= merged.changes
        now = {path: value for path, value in now.items() if value is not None}
        # A value that the declaration has replaced belongs to the declaration from then on.
        theirs = {path: each for path, each in theirs.items() if not merged.changes.get(path)}
        assert theirs.items() <= now.items()
        written = merged.written


def test_a_value_that_was_declared_as_it_stood():
    """Prevents: a person's value, once declared, is removed, or outlives a new declaration."""
    theirs = merge({CAPTION: "Net"}, [{}], {CAPTION: "Net"}, on_conflict="keep")
    edited = merge({CAPTION: "Net"}, [theirs.written], {CAPTION: "x"}, on_conflict="keep")
    again = merge({CAPTION: "Net"}, [edited.written], {CAPTION: "Net"}, on_conflict="keep")
    for written in (theirs.written, again.written):
        gone = merge({}, [written], {CAPTION: "Net"}, on_conflict="keep")
        assert (gone.changes, gone.kept, gone.written) == ({}, {CAPTION: "Net"}, {})
        new = merge({CAPTION: "Netto"}, [written], {CAPTION: "Net"}, on_conflict="keep")
        assert (new.changes, new.written) == ({CAPTION: "Netto"}, {CAPTION: "Netto"})


def test_a_calculation_is_removed_whole_or_not_at_all():
    # Prevents: a calculation leaves the declaration, and an analyst's refinement of it is lost.
    ours = {FORMULA: "1", FORMAT: "n0"}
    gone = merge({}, [ours], ours, on_conflict="keep")
    assert gone.changes == {FORMULA: None, FORMAT: None}
    theirs = merge({}, [ours], ours | {FORMAT: "n0.0"}, on_conflict="keep")
    assert (theirs.changes, theirs.written) == ({}, {})
    assert theirs.kept == ours | {FORMAT: "n0.0"}


def test_a_calculation_that_was_deleted():
    # Prevents: a refresh restores only half of a calculation that a person has deleted.
    ours = {FORMULA: "1", FORMAT: "n0"}
    kept = merge(ours, [ours], {}, on_conflict="replace")
    assert (kept.changes, kept.kept) == ({}, {FORMULA: None, FORMAT: None})
    new = ours | {FORMULA: "2"}
    assert merge(new, [ours], {}, on_conflict="keep").conflicts == (FORMULA,)
    assert merge(new, [ours], {}, on_conflict="replace").changes == new


def test_a_name_that_is_taken():
    # Prevents: our calculated field replaces an analyst's calculated field of the same name.
    found = {FORMULA: "2", ("calculation", "Margin", TAKEN): "[Calculation_7]"}
    for written in ([], [{FORMULA: "1"}], [{FORMULA: "2"}]):
        merged = merge({FORMULA: "1", FORMAT: "n0"}, written, found, on_conflict="replace")
        assert merged.conflicts == (FORMULA,)
        assert not merged.changes
    assert merge({}, [{FORMULA: "2"}], found, on_conflict="replace").changes == {}


def test_before_it_is_known_whether_a_publish_took_effect():
    # Prevents: a value of our own, from a publish of unknown outcome, passes for a person's edit.
    for found in ({CAPTION: "new"}, {CAPTION: "old"}, {}):
        merged = merge(
            {CAPTION: "newer"}, [{CAPTION: "new"}, {CAPTION: "old"}, {}], found, on_conflict="keep"
        )
        assert merged.changes == {CAPTION: "newer"}


def test_rows():
    # Prevents: a Dagster page shows JSON, or does not show whether an edit stays.
    route, caption = ("hierarchy", "Route", "fields"), ("field", "Extract", "net", "caption")
    wanted = {route: '["a", "t.b"]', caption: "Net", FORMULA: "1", CAPTION: "x"}
    found = {caption: "Nett", FORMULA: "2", CAPTION: "x"}
    merged = merge(wanted, [{caption: "Net"}], found, on_conflict="keep")
    assert metadata_rows(wanted, merged) == [
        ("hierarchy Route", "a > t.b", "", "to be published"),
        ("caption of net", "Net", "Nett", "edited, stays"),
        ("formula of Margin", "1", "2", "conflict, stays"),
        ("caption of flights.net", "x", "x", ""),
    ]
    merged = merge(wanted, [{caption: "Net"}], found, on_conflict="replace")
    assert metadata_rows(wanted, merged)[2] == (
        "formula of Margin",
        "1",
        "2",
        "conflict, to be replaced",
    )


def test_what_goes_is_said_to_go():
    """Prevents: the reason for a publish does not say that the publish removes a caption."""
    past = {CAPTION: "Net", FORMULA: "1"}
    merged = merge({FORMULA: "2"}, [past], past, on_conflict="keep")
    assert merged.phrase == "metadata: formula of Margin, caption of flights.net removed"

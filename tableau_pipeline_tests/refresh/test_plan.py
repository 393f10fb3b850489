"""The decisions of a refresh, and its refusals of changes, models and damaged files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import (
    Declaration,
    Guard,
    Reconcile,
    Republish,
    Retain,
    Table,
)
from tableau_pipeline.core.fields import Calculation, FieldMetadata
from tableau_pipeline.core.policies import Diff, ReplaceAll
from tableau_pipeline.errors import DamagedSnapshotError, RefusedError
from tableau_pipeline.extracts.checks import contract_problems, spark_name
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.hyper.types import Column, TypePolicy
from tableau_pipeline.outcome import Accept, Check, by_check
from tableau_pipeline.refresh.decide import Refuse
from tableau_pipeline.refresh.preview import preview_declared
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import STAR, Pipeline
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_pipeline_tests.refresh.support.shipping import refused

BY_ID = Diff(("flight_id",))
DELAYS = flights()["delay"]
WIDER = flights(gate=DELAYS)
NARROWER = flights().drop_columns("delay")
LONGER = flights().set_column(2, "delay", DELAYS.cast(pa.int64()))
OTHER_CASE = flights().rename_columns(["flight_id", "Carrier", "delay"])
REMEDY = (
    "on_schema_change: additive refuses that. To publish it all the same, run once with accept: "
    "[schema]; otherwise, correct what produces the data"
)
NEW = "publish (overwrite): full publish: flights.gate is new (int)"
GONE = "refused: The schema changed: flights.delay is gone (int). "
SCHEMAS = [
    ("additive", WIDER, NEW),
    ("additive", NARROWER, GONE + REMEDY),
    ("additive", LONGER, "refused: The schema changed: flights.delay was int and is bigint. "),
    ("additive", OTHER_CASE, "refused: The schema changed: flights.carrier is gone (string)"),
    # A refusal does not list the new column, which is harmless.
    ("additive", WIDER.drop_columns("delay"), GONE),
    ("refuse", WIDER, "refused: The schema changed: flights.gate is new (int). on_schema_change"),
    ("refuse", NARROWER, GONE),
    ("publish", WIDER, NEW),
    ("publish", NARROWER, "publish (overwrite): full publish: flights.delay is gone (int)"),
    ("publish", LONGER, "publish (overwrite): full publish: flights.delay was int and is bigint"),
    # Users do not see the order of columns, so no policy refuses another order.
    (
        "refuse",
        flights().select(["delay", "carrier", "flight_id"]),
        "publish (replace): full publish: the order of columns changed in flights",
    ),
]


@pytest.mark.slow
def test_changes_of_columns(pipeline: Pipeline):
    """Prevents: a refresh drops a column that dashboards use, or refuses a harmless new column."""
    pipeline.run()
    for policy, rows, expected in SCHEMAS:
        pipeline.declare(on_schema_change=policy)
        pipeline.model("flights", rows)
        found = pipeline.decide()
        assert found.startswith(expected), f"{policy}: {rows.schema.names}"
        if "refused:" in found:
            assert pipeline.decide(Accept.SCHEMA).startswith("publish (overwrite): full publish: ")


@pytest.mark.slow
def test_changes_of_tables(star: Pipeline):
    """Prevents: a table that the YAML leaves out disappears from dashboards without consent."""
    both = star.declaration.tables
    star.declare(tables=both[:1], relationships=())
    star.run()
    star.declare(tables=both, relationships=STAR)
    assert 'full publish: table "airlines" is new' in star.decide()
    star.run()
    others = (Relationship("flights", "airlines", (("carrier", "name"),)),)
    star.declare(relationships=others)
    assert star.decide() == "publish (overwrite): full publish: the declaration changed"
    star.declare(tables=both[:1], relationships=())
    assert star.decide().startswith('refused: The schema changed: table "airlines" is gone')


def test_problems_are_told_at_once_and_accepted_one_by_one(pipeline: Pipeline):
    """Prevents: a refusal names only one of two problems, or one acceptance covers both."""
    pipeline.run()
    pipeline.model("flights", NARROWER.slice(0, 1))
    plan = pipeline.run(dry_run=True).plan
    assert isinstance(plan, Refuse)
    failed = by_check(plan.refusals)
    assert failed[Check.GUARD].startswith('Table "flights": model "flights" has 1 rows')
    assert "flights.delay is gone" in failed[Check.SCHEMA]
    assert plan.reason == "\n".join([failed[Check.GUARD], failed[Check.SCHEMA]])
    for accepted, left in ((Accept.SCHEMA, "has 1 rows"), (Accept.SHRINK, "delay is gone")):
        found = pipeline.decide(accepted)
        assert found.startswith("refused")
        assert len(found.splitlines()) == 1
        assert left in found
    assert pipeline.decide(Accept.SCHEMA, Accept.SHRINK).startswith("publish (overwrite)")


def test_rows_that_a_check_rejected(pipeline: Pipeline):
    """Prevents: a refresh publishes rejected rows, or an acceptance covers later rows as well."""
    pipeline.rejected = {"flights": ["plausible", "complete"]}
    assert pipeline.decide().startswith(
        'refused: Table "flights": the blocking checks "plausible", "complete" of the model '
        '"flights" rejected its newest rows. '
    )
    with pytest.raises(RefusedError, match=r"run once with accept: \[checks\]"):
        pipeline.run(build_only=True)
    pipeline.run(Accept.CHECKS)
    assert pipeline.decide().startswith("no change")
    assert pipeline.decide(full=True).startswith("publish")
    pipeline.model("flights", flights(9))
    assert pipeline.decide().startswith("refused")
    # One refusal names all problems at once.
    pipeline.model("flights", flights(1))
    assert len(pipeline.decide().splitlines()) == 2
    assert "rejected" not in pipeline.decide(Accept.CHECKS)
    # With `metadata_only`, a refresh leaves the published rows as they are.
    assert pipeline.decide(metadata_only=True).startswith("no change")


SIZES: list[tuple[dict[str, Any], str]] = [
    ({}, "update: new content in flights: flights -8 +8 rows"),
    ({"republish": {"growth": 0.5}}, "since the last full publish would total 0.07 MB"),
    ({"republish": {"growth": 1.5}, "payload_limit_mb": 1}, "update: "),
    ({"republish": {"after": 1}}, "update: "),
    ({"payload_limit_mb": 1e-6}, "exceeds the limit of 0.00 MB for payloads"),
    ({"payload_limit_mb": 1e-6, "on_oversize": "split"}, "and it cannot be split below that"),
]


@pytest.mark.slow
def test_sizes_and_limits(pipeline: Pipeline):
    """Prevents: updates let a file grow without limit, or exceed the limit for payloads."""
    pipeline.policy(BY_ID)
    pipeline.run()
    pipeline.model("flights", flights(delay=1))
    usual = pipeline.declaration
    for declared, expected in SIZES:
        pipeline.declaration = replace(usual, **declared)
        found = pipeline.decide()
        assert expected in found, declared
        assert found.startswith("update" if "update: " in expected else "publish (replace)")
    pipeline.declaration = replace(usual, republish=Republish(after=1))
    pipeline.run()
    pipeline.model("flights", flights(delay=2))
    assert "1 updates since the last full publish" in pipeline.decide()


@pytest.mark.slow
def test_edited_metadata_hinders_overwrites_alone(pipeline: Pipeline):
    """Prevents: a calculated field stops all refreshes, or disappears without consent."""
    pipeline.policy(BY_ID)
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.run()
    assert pipeline.decide(full=True).startswith("publish (replace)")
    assert pipeline.decide(Accept.OVERWRITE, full=True).startswith(
        "publish (overwrite): full publish, as asked (accept: overwrite)"
    )
    pipeline.model("flights", flights(delay=1))
    assert pipeline.decide(Accept.OVERWRITE).startswith("update")
    tables = (*pipeline.declaration.tables, Table("airlines", "airlines"))
    pipeline.declare(tables=tables, relationships=STAR)
    pipeline.model("airlines", airlines())
    found = pipeline.decide(Accept.SCHEMA)
    for part in ("refused: ", 'table "airlines" is new', '"Delayed"', "accept: [overwrite]"):
        assert part in found
    assert pipeline.decide(Accept.OVERWRITE).startswith("publish (overwrite)")


GUARDS = [
    (0, Guard(), "has 0 rows, fewer than guard.min_rows (1). If that is right, run again with acc"),
    (0, Guard(min_rows=0, max_shrink=1), None),
    (1, Guard(min_rows=2, max_shrink=1), "fewer than guard.min_rows (2)"),
    (50, Guard(), "50 rows where 100 are published: a loss of 50%, and guard.max_shrink is 50%"),
    (51, Guard(), None),
    # In floating point, 0.29 * 100 is less than 29. The guard must still allow a loss of 28 rows.
    (72, Guard(max_shrink=0.29), None),
    (71, Guard(max_shrink=0.29), "a loss of 29%, and guard.max_shrink is 29%"),
    (99, Guard(max_shrink=0), "a loss of 1%, and guard.max_shrink is 0%"),
    # Here only the guard has changed.
    (100, Guard(min_rows=101), "100 rows, fewer than guard.min_rows (101)"),
    (1000, Guard(max_shrink=0), None),
]


def test_guards(pipeline: Pipeline):
    """Prevents: an empty table reaches the dashboards, or a guard is off by one row."""
    pipeline.model("flights", flights(0))
    assert "fewer than guard.min_rows (1)" in pipeline.decide(), "from the first publish on"
    pipeline.model("flights", flights(100))
    pipeline.run()
    for rows, guard, problem in GUARDS:
        pipeline.policy(BY_ID, guard=guard)
        pipeline.model("flights", flights(rows))
        found = pipeline.decide()
        assert found.startswith("refused") is (problem is not None), guard
        assert (problem or "") in found
        assert not problem or not pipeline.decide(Accept.SHRINK).startswith("refused")


def test_shrunk_star(star: Pipeline):
    """Prevents: a guard compares the rows of one table with the rows of another table."""
    star.model("airlines", airlines(*(f"A{number}" for number in range(30)), "AA", "UA"))
    star.run()
    star.model("airlines", airlines())
    assert 'Table "airlines": model "airlines" has 2 rows where 32 are' in star.decide()


def shrinks(pipeline: Pipeline, *parts: str) -> None:
    """Check that a model with a single row is refused until a user accepts the loss."""
    pipeline.model("flights", flights(1))
    refused(pipeline.run, "accept: [shrink]", *parts)
    assert pipeline.wrong() != []
    pipeline.run(Accept.SHRINK)
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_shrunk_against_what_is_adopted(pipeline: Pipeline):
    """Prevents: an adoption replaces many rows of another user with few rows, without consent."""
    other_users.publishes(pipeline, flights(100))
    pipeline.declare(adopt=True)
    shrinks(pipeline, "1 rows where 100 are published")


UNREADABLE = Reconcile(max_mb=1e-6, by="download")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "parts"),
    [
        pytest.param(Reconcile(), ["1 rows where 8 are published"], id="file"),
        # The file is too large for a download, so the server counts the rows.
        pytest.param(Reconcile(max_mb=1e-6), ["1 rows where 8 are published"], id="server"),
        pytest.param(
            UNREADABLE,
            ["how many are published is not known", "reconcile: max_mb"],
            id="not at all",
        ),
    ],
)
def test_shrunk_since_the_records_were_lost(pipeline: Pipeline, rule: Reconcile, parts: list[str]):
    """Prevents: without records, a refresh replaces many rows with one row, without consent."""
    pipeline.declare(reconcile=rule)
    pipeline.run()
    pipeline.journal.forget()
    shrinks(pipeline, *parts)


def test_shrunk_where_the_server_tells_sizes_in_lists_alone(pipeline: Pipeline):
    """Prevents: a guard cannot count rows if only the server's lists show the sizes of files."""

    class Server(Proxy):
        def find_by_luid(self, luid: str) -> Any:
            return replace(self.behind.find_by_luid(luid), megabytes=None)

        def find_by_name(self, name: str, **where: str) -> Any:
            return replace(self.behind.find_by_name(name, **where), megabytes=None)

    pipeline.declare(reconcile=Reconcile(by="download"))
    pipeline.run()
    pipeline.journal.forget()
    pipeline.model("flights", flights(1))
    with pytest.raises(RefusedError, match="1 rows where 8 are published"):
        pipeline.run(around={"around_server": Server})


def test_nothing_is_counted_for_no_guard(pipeline: Pipeline):
    """Prevents: a guard that allows any loss still downloads the file, or refuses the refresh."""
    pipeline.declare(reconcile=UNREADABLE)
    pipeline.policy(ReplaceAll(), guard=Guard(max_shrink=1))
    pipeline.run()
    pipeline.journal.forget()
    pipeline.model("flights", flights(1))
    pipeline.run()
    assert pipeline.wrong() == []


KEY, DELAY, DAY = Column("k", "bigint"), Column("delay", "int"), Column("day", "date")
TABLE = Table("flights", "flights", policy=Diff(("k",)), contract=(KEY, DELAY, DAY))
BEFORE = Declaration(name="Flights", project="Default", tables=(TABLE,))
TO_AIRLINES = Relationship("flights", "airlines", (("k", "k"),))


def tables(*given: Table, **more: object) -> Declaration:
    """Return a declaration with these tables."""
    return replace(BEFORE, tables=given, **more)


@pytest.mark.parametrize(
    ("now", "kind", "message"),
    [
        (tables(replace(TABLE, policy=Diff(("k", "day")), guard=Guard(100))), "unchanged", ""),
        (replace(BEFORE, name="All Flights", project="Other"), "move", "renamed from"),
        (replace(BEFORE, project="Other"), "move", 'moved to "Other", if that project exists'),
        (replace(BEFORE, project="Other", create_project=True), "move", 'moved to "Other";'),
        (tables(replace(TABLE, retain=Retain("day", 30))), "update", "new content in flights"),
        (tables(replace(TABLE, model="other")), "update", "new content in flights"),
        (tables(replace(TABLE, contract=(KEY, DELAY))), "refused", "on_schema_change: additive"),
        (
            tables(replace(TABLE, contract=(KEY, DELAY)), on_schema_change="publish"),
            "publish",
            "full publish: flights.day is gone",
        ),
        (
            tables(replace(TABLE, fields=(FieldMetadata("delay", caption="Delay"),))),
            "publish",
            "full publish: metadata: caption of delay",
        ),
        (
            tables(replace(TABLE, contract=TABLE.contract[::-1])),
            "publish",
            "full publish: the order of columns changed in flights",
        ),
        # Without a contract, the future columns are unknown.
        (tables(replace(TABLE, contract=())), "unchanged", ""),
        (
            tables(TABLE, Table("airlines", "airlines"), relationships=(TO_AIRLINES,)),
            "publish",
            'full publish: table "airlines" is new',
        ),
    ],
)
def test_a_changed_declaration_whose_models_have_not_run(now: Declaration, kind: str, message: str):
    """Prevents: reviewers learn of a refusal only after the merge."""
    found = preview_declared(BEFORE, now)
    assert found.kind == kind
    assert message in found.reason


def test_a_declaration_that_no_contract_explains():
    """Prevents: a plan fails for a table without a contract, or a refusal hides other changes."""
    field = Calculation("Margin", formula="[b] + 1")
    before = replace(BEFORE, tables=(replace(TABLE, contract=()),), calculations=(field,))
    found = preview_declared(before, replace(before, name="All Flights"))
    assert (found.kind, found.size) == ("move", 0)
    captioned = (FieldMetadata("delay", caption="Delay"),)
    narrower = replace(TABLE, contract=(KEY, DELAY), fields=captioned)
    now = tables(narrower, Table("airlines", "airlines"), relationships=(TO_AIRLINES,))
    found = preview_declared(BEFORE, now)
    assert (found.kind, found.tables) == ("refused", 2)
    assert [each.text for each in found.notes] == ['caption of flights.delay becomes "Delay"']


def related(*on: tuple[str, str]) -> dict[str, Any]:
    return {"relationships": (Relationship("flights", "airlines", on),)}


TAGS = pa.array([[1], [2]], pa.list_(pa.int64()))
ONE_SIDE = ("flights -> airlines", 'table "airlines"', "fix the model")


@pytest.mark.parametrize("build_only", [False, True])
@pytest.mark.parametrize(
    ("declared", "models", "parts"),
    [
        pytest.param(
            {},
            {"airlines": None},
            ['Table "airlines"', 'model "airlines"', "Materialize", "`model:`"],
            id="no snapshot",
        ),
        pytest.param(
            related(("carier", "carrier")),
            {},
            ["Relationship flights -> airlines", '"carier"', "flight_id, carrier, delay"],
            id="unknown column",
        ),
        pytest.param(
            related(("carrier", "code")),
            {},
            ["Relationship flights -> airlines", '"airlines"', '"code"', "carrier, name"],
            id="unknown column of the other",
        ),
        pytest.param(
            related(("delay", "carrier")),
            {},
            ["flights -> airlines", "delay", "int", "carrier", "string"],
            id="columns of different types",
        ),
        pytest.param(
            {},
            {"flights": flights(2, tags=TAGS)},
            ['Table "flights"', 'column "tags"', "array<bigint>", "nested: json"],
            id="type without a place",
        ),
        pytest.param(
            {},
            {"airlines": airlines("AA", "UA", "AA")},
            [*ONE_SIDE, "carrier is not unique: 1 value of it repeats"],
            id="repeated key",
        ),
        pytest.param(
            {},
            {"airlines": airlines("AA", None)},
            [*ONE_SIDE, "carrier is NULL in 1 row"],
            id="key without a value",
        ),
    ],
)
def test_models_that_do_not_fit(
    star: Pipeline, declared: dict, models: dict, parts: list[str], build_only: bool
):
    """Prevents: a mistake in a model shows as an error of hyperd, or a refresh sends its rows."""
    star.declare(**declared)
    for name, rows in models.items():
        if rows is None:
            star.missing = {name}
        else:
            star.model(name, rows)
    refused(lambda: star.run(build_only=build_only), *parts)
    assert (star.extract_files(), star.journal.all_intents(), star.found()) == ([], [], [])
    assert star.journal.history().claim is None
    # A refresh checks keys last, after its sign-in.
    assert star.sessions == (0 if build_only or "fix the model" not in parts else 1)


def test_composite_key_may_repeat_its_parts(star: Pipeline):
    """Prevents: a key of two columns is refused because values of one column repeat."""
    star.declare(**related(("carrier", "carrier"), ("flight_id", "year")))
    years = pa.array([1, 1, 2, 2], pa.int64())
    star.model("airlines", airlines("AA", "UA", "AA", "UA").append_column("year", years))
    star.run()
    assert star.wrong() == []


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("BIGINT", "bigint"),
        ("long", "bigint"),
        ("Integer", "int"),
        ("decimal (10, 2)", "decimal(10,2)"),
        ("numeric(10,2)", "decimal(10,2)"),
        ("decimal", "decimal(10,0)"),
        ("array < int >", "array<int>"),
        ("struct<Id: int>", "struct<Id:int>"),
        ("string collate UTF8_LCASE", "string collate UTF8_LCASE"),
    ],
)
def test_types_by_all_their_names(written: str, name: str):
    """Prevents: a contract fails because it spells a type differently from Spark."""
    assert spark_name(written) == name


def test_all_differences_are_told_at_once(pipeline: Pipeline):
    """Prevents: a refusal lists only one difference, or a column outside a contract passes."""
    columns = (Column("flight_id", "int"), Column("carrier", "string"), Column("gate", "string"))
    pipeline.policy(ReplaceAll(), contract=columns)
    message = by_check(refused(pipeline.run).refusals)[Check.SCHEMA]
    for part in ("gate (string) is missing", "flight_id is bigint, not int", "is not in it"):
        assert part in message
    assert pipeline.found() == []


def test_what_is_declared_of_types_is_no_difference():
    """Prevents: a contract rejects a column because its table keeps time zones."""
    types = TypePolicy(timestamps="with_time_zone")
    table = Table("t", "t", contract=(Column("at", "timestamp"),))
    found = [types.apply(Column("at", "timestamp"))]
    assert list(contract_problems(table, found, types)) == []


def file_of(pipeline: Pipeline, number: int = 0) -> Path:
    return Path(pipeline.version("flights", 1).paths[number])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def zeros(path: Path) -> None:
    """Write zeros, as a power failure may do; the size stays the same."""
    path.write_bytes(b"\0" * path.stat().st_size)


def noise(path: Path) -> None:
    """Damage the rows of a file that can still be opened."""
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 4] = b"\xff" * (len(content) // 4 - 4)
    path.write_bytes(content)


def newer_release(path: Path) -> None:
    path.write_text(path.read_text().replace("{", '{"deleted_rows":[],', 1))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [noise, cut, zeros])
def test_a_base_with_a_damaged_file_is_none(star: Pipeline, damage: Callable[[Path], None]):
    """Prevents: one damaged file of the published snapshot makes every refresh fail."""
    facts = Table("flights", "flights", policy=BY_ID)
    star.declare(tables=(facts, Table("airlines", "airlines", policy=Diff(("carrier",)))))
    star.run()
    path = file_of(star, 1)
    damage(path)
    star.model("flights", flights(9))
    star.model("airlines", airlines("AA", "UA", "DL"))
    assert "cannot be read" in star.decide()
    report = star.run()
    assert report.decision == "update"
    assert report.tables["airlines"].whole is None
    why = str(report.tables["flights"].whole)
    assert why.startswith(f"a file of the snapshot that is published cannot be read ({path}: ")
    assert star.wrong() == []
    assert star.run().decision == "no change"


@pytest.mark.slow
@pytest.mark.parametrize("damage", [cut, newer_release, zeros])
def test_damaged_manifests(pipeline: Pipeline, damage: Callable[[Path], None]):
    """Prevents: a damaged manifest makes every refresh fail, or a green run sends older rows."""
    published, newest = (
        pipeline.folder / "snapshots" / pipeline.store.manifest("flights", number)
        for number in (1, 3)
    )
    pipeline.policy(BY_ID)
    pipeline.run()
    pipeline.model("flights", flights(9))
    damage(published)
    report = pipeline.run()
    assert report.decision == "update"
    assert str(published) in str(report.tables["flights"].whole)
    assert pipeline.wrong() == []
    pipeline.model("flights", flights(10))
    damage(newest)
    message = f'Version 3 of the model "flights" cannot be read: {newest}'
    for stops in (pipeline.run, pipeline.decide, lambda: pipeline.model("flights", flights(10))):
        refused(stops, message, "Restore the file from a backup", error=DamagedSnapshotError)
    newest.unlink()
    pipeline.model("flights", flights(10))
    assert pipeline.run().decision == "update"
    assert pipeline.wrong() == []


def test_a_damaged_base_does_not_accuse_the_server(pipeline: Pipeline):
    """Prevents: a refresh calls the published file damaged, but only the snapshot is damaged."""
    pipeline.declare(reconcile=Reconcile(by="download"))
    pipeline.run()
    path = file_of(pipeline)
    pipeline.model("flights", flights(9))
    cut(path)
    other_users.describes(pipeline)
    plan = pipeline.decide()
    assert "publish" in plan
    assert "the published file cannot be read" not in plan


@pytest.mark.parametrize(
    ("damage", "why"), [(cut, "file is not a Parquet file"), (Path.unlink, "the file is gone")]
)
def test_a_damaged_model_is_named(pipeline: Pipeline, damage: Callable, why: str):
    """Prevents: a damaged file of a model shows as an error about the values of the model."""
    path = file_of(pipeline)
    damage(path)
    named = f'The model "flights" cannot be read: {path}: {why}.'
    refused(pipeline.run, f"{named} Materialize it again, or restore the file.")


@pytest.mark.parametrize("character", ["\v", "\x1a", "\a", "\ufffe"])
def test_a_column_that_tableau_cannot_hold(pipeline: Pipeline, character: str):
    """Prevents: a data source is published without its tags, and every later refresh fails."""
    name = f"de{character}lay"
    pipeline.model("flights", flights().rename_columns(["flight_id", "carrier", name]))
    with pytest.raises(RefusedError, match=rf"column .* has the character U\+{ord(character):04X}"):
        pipeline.run()
    assert pipeline.found() == []

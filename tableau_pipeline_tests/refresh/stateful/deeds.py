"""What may happen in a history, before a refresh or while it is under way.

Each takes the history and the refresh to which it happens; None for what happens before one.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.declaration import Table, below
from tableau_pipeline.core.fields import (
    Calculation,
    FieldMetadata,
    Members,
    MetadataPolicy,
    Permission,
)
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX
from tableau_pipeline.core.journal import (
    Claim,
    ClaimRelease,
    Owner,
    Record,
    needed,
    read_history,
)
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful.actors import Actor, Event, NetworkFault
from tableau_pipeline_tests.refresh.stateful.checks.observer import (
    Look,
    note_meddling,
    note_rows,
    note_theirs,
)
from tableau_pipeline_tests.refresh.stateful.checks.promise import require
from tableau_pipeline_tests.refresh.stateful.models import changes
from tableau_pipeline_tests.refresh.stateful.scenarios import ROOT, Rules, related
from tableau_pipeline_tests.refresh.stateful.server.other_user import CAPABILITIES
from tableau_pipeline_tests.refresh.support.asked import Asked
from tableau_sandbox.faults import Cut, QueryFault
from tableau_sandbox.simulation import Fate


class Deed:
    """A function of this module, or of `changes`, that is still to be called.

    In a trace, `Deed(swap, 1, 2)` is "swap 1 2".
    """

    def __init__(self, does: Callable[..., Any], *args: Any) -> None:
        self.does, self.args = does, args

    def __call__(self, *context: Any) -> Any:
        return self.does(*context, *self.args)

    def __str__(self) -> str:
        return " ".join([self.does.__name__.replace("_", " "), *map(str, self.args)])

    __repr__ = __str__


def kill(history: Any, actor: Actor, noticed: bool) -> None:
    """The process is gone; if noticed, Dagster says at once that the run has ended."""
    actor.dead = True
    if noticed:
        actor.log.ended.add(actor.name)


def break_off(history: Any, actor: Actor, status: int | None) -> None:
    """A request comes to nothing, or its answer does; without a status the connection breaks."""
    history.note(f"a network fault: {status or 'it breaks'}")
    actor.fault, actor.had_fault = NetworkFault(status), True


def fail(history: Any, actor: Actor, fate: Fate) -> None:
    """The newest job of ours is going to fail, or to take long."""
    if actor.sendings:
        history.note(f"job {actor.sendings[-1].job[:4]} is to meet its fate: {fate}")
        history.tableau.fates[actor.sendings[-1].job] = fate


def another_refresh(history: Any, actor: Actor, takes_over: bool) -> None:
    """Another refresh runs, while this one does nothing.

    If it takes over, Dagster says that this one has ended, though it goes on afterwards.
    """
    # Where no time passes, a refresh would wait for a job for ever.
    if len(history.actors) > 1 or history.tableau.stands_still:
        return
    history.note(f"another refresh comes{', since this one is said to have ended' * takes_over}")
    if takes_over:
        actor.log.ended.add(actor.name)
    other = history.actor(publisher=actor.log.name)
    history.refresh(other, Asked())
    if takes_over and actor.claimed and other.has_claimed:
        actor.overtaken = history.next_moment()


def wipe(history: Any, actor: Actor | None) -> None:
    """Somebody wipes the asset; not while something of ours is on its way."""
    if not history.ledger.in_flight():
        history.note("the asset is wiped")
        history.logs["ours"].wipe()
        history.unclear = True
        if found := history.found():
            history.ledger.note_people(found.luid, dict.fromkeys(history.known_places(found)))


def later_release(history: Any, actor: Actor | None) -> None:
    """Another process of this deployment was upgraded, and stores a record in a later format."""
    history.note("a later release stores a record")
    history.logs["ours"].later_at = history.next_moment()


def materialize(
    history: Any, actor: Actor | None, table: int, becomes: Sequence[Deed], again: bool
) -> None:
    """A model gets other rows; all of its partitions may be written again."""
    tables = history.declaration.tables
    model = history.models[tables[table % len(tables)].model]
    for each in becomes:
        history.note(f"{model.name}: {each}")
        model.become(each(model))
    history.store.store(model, again=again)
    history.store_feeds()


def lose_column(history: Any, actor: Actor | None, table: int) -> None:
    """Another user uses the last column of a table in a calculated field, and then it goes."""
    meddle(history, actor, "edits", "calculation", table)
    materialize(history, actor, table, (Deed(changes.drop_column),), False)


def begin(history: Any, actor: Actor | None, models: Sequence[Deed]) -> None:
    """The models get their first rows."""
    declared = history.declaration
    everything = history.scenario.all_tables
    history.declaration = replace(declared, **related(everything, len(everything), chain=False))
    for each in models:
        each(history, actor)
    history.declaration = declared


def meddle(history: Any, actor: Actor | None, what: str, how: str, table: int) -> None:
    """Another user does something to the data source.

    Args:
        how: which rows or columns become others, or the other place.
        table: which one, of those that are published.
    """
    target = history.found()
    if target is None:
        if what == "creates":
            history.note("another user publishes a namesake")
            declared = history.declaration
            _publish_namesake(history, declared.name, declared.project)
        return
    before, other = Look.at(history, target), history.other_user
    history.note(f"another user {what} {how}")
    tags = {
        "tags": "theirs",
        "untags": history.declaration.tag,
        "untags the instance": f"{INSTANCE_TAG_PREFIX}ours",
    }
    match what:
        case "replaces" | "overwrites":
            no_replace = history.scenario.quirks["replace"] in ("refused", "fails", "unknown")
            mode = "overwrite" if no_replace else what.removesuffix("s")
            other.publishes(target, how, mode=mode, table=table)
        case "updates" | "sends an update":
            other.updates(target, how, table=table, at_once=what == "updates")
        case "edits":
            other.edits(target, how, table)
        case "cancels":
            other.cancels(history.chance)
        case "creates":
            pass
        case _:
            getattr(other, what.split()[0])(target, tags.get(what, how))
    note_meddling(history, what, before)


def declare(history: Any, actor: Actor | None, table: int, rules: Rules) -> None:
    """The policy, the window and the guard of a table are declared again."""
    shapes = {shape.name: shape for shape in history.scenario.shapes}
    tables = list(history.declaration.tables)
    at = table % len(tables)
    again = shapes[tables[at].name].table(rules)
    tables[at] = replace(again, fields=tables[at].fields)
    history.declaration = replace(history.declaration, tables=tuple(tables))


def say(
    history: Any, actor: Actor | None, table: int, what: str, value: str, on_conflict: Any
) -> None:
    """The declaration says something else of a field or of the data source; "" for nothing.

    Args:
        what: a part of a column, and its name: "caption k"; or "calculation", "hierarchy", "text",
            "tags", "permissions", "certify" or "owner".
    """
    tables = list(history.declaration.tables)
    at, (part, _, column) = table % len(tables), what.partition(" ")
    said: dict[str, Any] = {"metadata": MetadataPolicy(on_conflict)}
    match part:
        case "calculation":
            formula = f"COUNT([t1.{column}]) + {ord(value[:1] or ' ')}"
            said["calculations"] = (Calculation(name="Margin", formula=formula),) if value else ()
        case "hierarchy":
            fields = ("t1.k", "t1.cursor")[:: -1 if value == "A" else 1]
            said["hierarchies"] = (Members("Route", fields),) if value else ()
        case "text":
            said["description"] = value or None
        case "tags":
            said["tags"] = (value,) if value else ()
        case "certify":
            may = value and history.scenario.admin and history.declaration.reconcile
            said["certify"] = "after_reconcile" if may else None
            said["certification_note"] = "Equal" if may and value == "B" else None
        case "owner":
            may = value and history.scenario.admin
            said["owner"] = {"A": "boss", "B": "eve"}[value] if may else None
        case "permissions":
            allowed = CAPABILITIES if value == "A" else CAPABILITIES[:1]
            said["permissions"] = (Permission("All Users", allowed),) if value else ()
        case _:
            known = {each.name: each for each in tables[at].fields}
            choices = {
                # Two fields of a data source cannot have the same caption.
                "caption": value and f"{value} {column} of {tables[at].name}",
                "format": {"A": "0.00", "B": "0.000"}.get(value, ""),
                "role": {"A": "dimension", "B": "measure"}.get(value),
                "aggregation": {"A": "min", "B": "max"}.get(value),
                "hidden": bool(value),
            }
            field = known.get(column) or FieldMetadata(column)
            known[column] = replace(field, **{part: choices.get(part, value)})
            tables[at] = replace(tables[at], fields=tuple(known.values()))
    if said.get("hierarchies", history.declaration.hierarchies):
        tables = [_in_one_folder(each, column or "k") for each in tables]
    history.declaration = replace(history.declaration, tables=tuple(tables), **said)


_ROUTE = ("k", "cursor")


def _in_one_folder(table: Table, column: str) -> Table:
    """The table, with the fields of the hierarchy in the folder of one, if that is among them."""
    known = {each.name: each for each in table.fields}
    if table.name != "t1" or column not in _ROUTE:
        return table
    folder = known[column].folder if column in known else ""
    for name in _ROUTE:
        known[name] = replace(known.get(name) or FieldMetadata(name), folder=folder)
    return replace(table, fields=tuple(known.values()))


def relate(history: Any, actor: Actor | None, count: int, chain: bool) -> None:
    """More or fewer tables are declared, or other relationships of the same."""
    known = {table.name: table for table in history.declaration.tables}
    tables = [known.get(table.name) or table for table in history.scenario.all_tables]
    history.declaration = replace(history.declaration, **related(tables, count, chain=chain))


def place(history: Any, actor: Actor | None, name: str, project: str, taken: bool) -> None:
    """The data source is declared at another place; another user may have taken that."""
    if taken:
        _publish_namesake(history, name, project)
    else:
        # In any case, the project exists.
        history.other_user.project(project)
    # Whoever declares it waits until it is listed.
    history.tableau.pass_time(history.scenario.quirks["index_lag_seconds"])
    history.declaration = replace(history.declaration, name=name, project=project)


def _publish_namesake(history: Any, name: str, project: str) -> None:
    """Another user publishes a data source of their own, unless one has this name there."""
    found = history.other_user.project(project)
    if (name, found) not in [(each.name, each.project) for each in history.tableau.datasources()]:
        history.other_user.publishes_same_name(name, found)
        note_theirs(history)


def adopt(
    history: Any, actor: Actor | None, change: str, edited: str, forgotten: bool, tables: int
) -> None:
    """Another user deletes the data source, and publishes one of their own, to be adopted.

    Args:
        change: what becomes of its rows or columns; "" for nothing.
        edited: what they have changed of its metadata; "" for nothing.
        forgotten: no record tells of the first one.
        tables: the number of tables that are declared from then on; 0 for those of before.
    """
    target = history.found()
    if target is None or history.ledger.in_flight():
        return
    takes_stars = history.scenario.quirks["several_tables"] != "refused"
    if not takes_stars and len(json.loads(target.tables)) > 1:
        return
    before = Look.at(history, target)
    history.other_user.takes(target, change, edited=edited)
    note_meddling(history, "takes", before)
    note_rows(history, note_theirs(history))
    history.declaration = replace(history.declaration, adopt=True)
    if tables:
        relate(history, actor, tables, history.scenario.chain)
    if forgotten:
        history.logs["ours"].wipe()


def damage(
    history: Any,
    actor: Actor | None,
    what: str,
    table: int,
    file: int,
    newest: bool,
    again: Sequence[Deed],
) -> None:
    """A disk damages what was stored of a model: the published version, or the newest.

    Args:
        what: "cut" or "removed" for one of its files, or "manifest".
        again: the model is written again, with these changes.
    """
    tables = history.declaration.tables
    model = tables[table % len(tables)].model
    number = history.store.number(model)
    if not newest:
        known = read_history(history.logs["ours"].records)
        number = known.published_version(model) or number
    history.note(f"version {number} of {model} is damaged")
    history.store.damage(model, number, what, file=file)
    if again:
        materialize(history, actor, table, again, True)


def attempts(history: Any, actor: Actor | None, count: int, killed: bool) -> None:
    """Many refreshes come to nothing, one after another, for days: they change no rows.

    Each leaves a claim. One that is refused ends it; one that is killed does not, but records
    once more the request that the first of them was to send.
    """
    log = history.logs["ours"]
    claims = read_history(log.records).open_claims
    live = [each for each in claims if each.owner.run_id not in log.ended]
    if live or history.ledger.in_flight() or log.later_at is not None:
        # They would only wait.
        return
    history.note(f"{count} refreshes are {'killed' if killed else 'refused'}")
    if killed:
        dies = Event("appended intent", 1, Deed(kill, True))
        history.refresh(history.actor(events=(dies,)), Asked(full=True))
        history.tableau.come_to_rest()
    # All of a long journal need not be read again each time.
    recent = needed(log.records)
    for _ in range(count):
        number = read_history(recent).number + 1
        claim = Claim(refresh=number, owner=Owner(run_id=f"attempt {number}"))
        log.ended.add(claim.owner.run_id)
        ended = ClaimRelease(refresh=number, claim=claim.id)
        added = [claim, *(_nothing_sent(history, recent, claim) if killed else [ended])]
        log.records += added
        recent = needed([*recent, *added])


def _nothing_sent(history: Any, records: list[Record], claim: Claim) -> list[Record]:
    """The records of a refresh that is killed right before the same request is sent again."""
    known = read_history(records)
    if not known.intents or any(each.job_id for each in known.intents):
        return []
    # Who may not list jobs waits until none of them can run.
    history.tableau.pass_time(0 if history.scenario.admin else 700)
    lost = [
        each.model_copy(update={"outcome": each.outcome or Outcome.LOST}) for each in known.intents
    ]
    recovered = known.recovered
    for each in lost:
        recovered = recovered.after(each)
    again = {"refresh": claim.refresh, "step": 1, "request_id": str(uuid4()), "outcome": None}
    again |= {"recorded_at": history.tableau.now, "run_id": claim.owner.run_id}
    intent = known.intents[-1].model_copy(update=again)
    return [*lost, recovered.recorded_by(claim.refresh), intent]


def another_environment(
    history: Any, actor: Actor | None, options: Asked, comes_here: bool
) -> None:
    """Another environment of this deployment refreshes the same declaration, below its root.

    Args:
        comes_here: somebody moves what it published to where ours was, and we may take over all.
    """
    if history.ledger.in_flight():
        return
    # What others have on its way would seem to be its doing; and so would a late stamp of theirs.
    history.tableau.come_to_rest()
    if history.scenario.quirks["updates_move_stamp"] == "late":
        history.tableau.pass_time(history.scenario.quirks["late_stamp_seconds"])
    history.note("another environment refreshes")
    declared = below(history.declaration, ROOT)
    log = next(each for each in history.logs.values() if each.key == declared.key)
    other = replace(history.actor(publisher=log.name), declaration=declared, apart=True)
    before, known = history.of_environment(ours=True), {*history.of_environment(ours=True)}
    ledger = history.ledger
    ledger.tableau.fate, ledger.tableau.on_job = lambda _: Fate(), lambda *_: None
    history.actors.append(other)
    with suppress(RefreshError):
        options.carry_out(history.setup(other))
    history.actors.pop()
    ledger.__post_init__()
    log.ended.add(other.name)
    history.elsewhere |= {*history.of_environment(ours=True)} - known
    require(history.of_environment(ours=True) == before, "another environment changes ours")
    found = [e for e in history.tableau.datasources() if e.luid in history.elsewhere]
    if comes_here and found:
        meddle(history, None, "deletes", "", 0)
        history.other_user.moves(found[0], history.declaration.project)
        history.declaration = replace(history.declaration, adopt=True)
        history.refresh(history.actor(), Asked(accept=frozenset(Accept)))


def collect(history: Any, actor: Actor | None) -> None:
    """Old snapshots are removed."""
    history.store.collect()


def time_passes(history: Any, actor: Actor | None, days: int, seconds: float) -> None:
    """Nothing happens for a while."""
    history.tableau.pass_time(days * 86400 + seconds)


def bad_answers(history: Any, actor: Actor | None, fault: QueryFault | Cut) -> None:
    """Some answers to questions about rows are old, broken, or of fewer rows."""
    history.tableau.control.add(fault)


def all_runs_end(history: Any, actor: Actor | None) -> None:
    """Dagster learns that all runs which were killed have ended; or somebody deletes those runs."""
    history.end_all()

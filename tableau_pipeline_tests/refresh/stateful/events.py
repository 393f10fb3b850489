"""The events of histories: what happens before a refresh, or while one runs.

Each event is a function. Its arguments are the history, the running refresh (None before a
refresh), and further arguments of the event.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.declaration import Table, in_environment
from tableau_pipeline.core.fields import (
    Calculation,
    FieldMetadata,
    Members,
    MetadataPolicy,
    Permission,
)
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX
from tableau_pipeline.core.journal import Claim, ClaimRelease, Owner, Record
from tableau_pipeline.core.journal import History as Records
from tableau_pipeline.core.journal_store import SILENCE, owner_here
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful.checks.require import require
from tableau_pipeline_tests.refresh.stateful.checks.visibility import (
    State,
    note_rows,
    note_users_change,
    note_users_data_source,
)
from tableau_pipeline_tests.refresh.stateful.models import changes
from tableau_pipeline_tests.refresh.stateful.refreshes import NetworkFault, Refresh, TimedEvent
from tableau_pipeline_tests.refresh.stateful.scenarios import ROOT, Rules, related
from tableau_pipeline_tests.refresh.stateful.server.other_user import CAPABILITIES
from tableau_pipeline_tests.refresh.support.asked import Asked
from tableau_sandbox.faults import Cut, QueryFault
from tableau_sandbox.simulation import Fate


class _Call:
    """A function with its arguments, drawn now and called later.

    In a trace, a call of `swap` with 1 and 2 is "swap 1 2".
    """

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function, self.args = function, args

    def __call__(self, *context: Any) -> Any:
        return self.function(*context, *self.args)

    def __str__(self) -> str:
        return " ".join([self.function.__name__.replace("_", " "), *map(str, self.args)])

    __repr__ = __str__


class Event(_Call):
    """A function of this module, with its arguments: something that happens in a history."""


class Change(_Call):
    """A function of `changes`, with its arguments: a change of the rows or columns of a model."""


def kill(history: Any, refresh: Refresh, noticed: bool) -> None:
    """The process of the refresh is killed.

    Args:
        noticed: Dagster reports at once that its run has ended.
    """
    refresh.killed = True
    if noticed:
        refresh.journal.ended.add(refresh.name)


def network_fault(history: Any, refresh: Refresh, status: int | None) -> None:
    """The network loses a call or its answer.

    Args:
        status: the status of an error instead of the answer; None if the connection breaks.
    """
    history.note(f"a network fault: {status or 'it breaks'}")
    refresh.fault, refresh.had_fault = NetworkFault(status), True


def job_fate(history: Any, refresh: Refresh, fate: Fate) -> None:
    """The newest job of the refresh will fail, or take long."""
    if history.scenario.quirks["job_access"] != "own-jobs" and not history.scenario.admin:
        # Without access to jobs, a refresh waits for the time limit of jobs: no job may exceed it.
        fate = replace(fate, runs=min(fate.runs, 100))
    if refresh.requests:
        history.note(f"job {refresh.requests[-1].job[:4]} will have this fate: {fate}")
        history.tableau.fates[refresh.requests[-1].job] = fate


def another_refresh(history: Any, refresh: Refresh, takes_over: bool) -> None:
    """Another refresh runs while the active refresh waits.

    Args:
        takes_over: the waiting refresh counts as ended, although it goes on afterwards.
            Dagster reports its end, or its heartbeat is silent for too long.
    """
    # While no time passes, the other refresh would wait for a job for ever.
    if len(history.running) > 1 or history.tableau.stands_still:
        return
    history.note(f"another refresh comes{', since this one counts as ended' * takes_over}")
    if takes_over:
        refresh.journal.ended.add(refresh.name)
        if refresh.journal.ask(refresh.owner) is None:
            refresh.paused = True
            history.tableau.pass_time(SILENCE.total_seconds() + 1)
    other = history.new_refresh(publisher=refresh.journal.name)
    history.run(other, Asked())
    refresh.paused = False
    if takes_over and refresh.holds_claim and other.has_claimed:
        refresh.overtaken_at = history.next_moment()


def wipe(history: Any, refresh: Refresh | None) -> None:
    """The records are lost, unless a request of ours is unfinished."""
    if not history.requests.in_flight():
        history.note("the records are lost")
        history.journals["ours"].wipe()
        _note_lost_records(history)


def restore(history: Any, refresh: Refresh | None, number: int) -> None:
    """An old backup replaces the records, unless a request of ours is unfinished.

    If updates never move the time stamp, no refresh would notice the backup. Then this event does
    nothing.
    """
    journal = history.journals["ours"]
    is_seen = history.scenario.quirks["updates_move_stamp"] != "never"
    if journal.saved and is_seen and not history.requests.in_flight():
        history.note("a backup of the records is restored")
        journal.restore(number)
        _note_lost_records(history)
        claim = journal.history().claim
        for running in history.running:
            if claim and claim.owner == running.owner:
                # The refresh has its claim back, and no record names the refresh that overtook it.
                running.overtaken_at = None


def _note_lost_records(history: Any) -> None:
    history.metadata_unclear = history.edits_unclear = True
    if datasource := history.data_source():
        history.requests.note_origin_unknown(datasource.luid, history.known_items(datasource))


def lose_home(history: Any, refresh: Refresh | None) -> None:
    """Dagster's instance is lost, and with it all earlier runs."""
    history.note("DAGSTER_HOME is lost")
    history.forget_runs()


def store_fault(history: Any, refresh: Refresh, arrives: bool) -> None:
    """The store of the journal does not answer the next write.

    Args:
        arrives: the record is stored all the same.
    """
    history.note(f"the store does not answer, and the record is {'not ' * (not arrives)}stored")
    refresh.journal.store.fault = arrives


def later_release(history: Any, refresh: Refresh | None) -> None:
    """A process of this deployment was upgraded, and stores a record in a later format."""
    journal = history.journals["ours"]
    if journal.later_at is None:
        history.note("a later release stores a record")
        journal.upgrade_another(history.next_moment())


def materialize(
    history: Any, refresh: Refresh | None, table: int, model_changes: Sequence[Change], again: bool
) -> None:
    """A model changes and is stored.

    Args:
        table: the number of one of the declared tables.
        again: all partitions of the model are written again, not only the changed partitions.
    """
    tables = history.declaration.tables
    model = history.models[tables[table % len(tables)].model]
    for change in model_changes:
        history.note(f"{model.name}: {change}")
        model.become(change(model))
    history.store.store(model, again=again)
    history.store_feeds()


def lose_column(history: Any, refresh: Refresh | None, table: int) -> None:
    """Another user bases a calculated field on the last column; then the model loses it."""
    another_user(history, refresh, "edits", "calculation", table)
    materialize(history, refresh, table, (Change(changes.drop_column),), False)


def fill_models(history: Any, refresh: Refresh | None, models: Sequence[Event]) -> None:
    """All models get their first rows."""
    declared = history.declaration
    everything = history.scenario.all_tables
    history.declaration = replace(declared, **related(everything, len(everything), chain=False))
    for event in models:
        event(history, refresh)
    history.declaration = declared


def another_user(history: Any, refresh: Refresh | None, what: str, how: str, table: int) -> None:
    """Another user does something to the data source.

    Args:
        what: a method of `OtherUser`, or one of the cases below.
        how: the argument of the method, such as the rows that change, a name or a place.
        table: the number of one of the published tables.
    """
    target = history.data_source()
    if target is None:
        if what == "creates":
            history.note("another user publishes a namesake")
            declared = history.declaration
            _publish_namesake(history, declared.name, declared.project)
        return
    before, other = State.of(history, target), history.other_user
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
    note_users_change(history, what, before)


def declare_table(history: Any, refresh: Refresh | None, table: int, rules: Rules) -> None:
    """A table gets another policy, window and guard."""
    shapes = {shape.name: shape for shape in history.scenario.shapes}
    tables = list(history.declaration.tables)
    at = table % len(tables)
    declared = shapes[tables[at].name].table(rules)
    tables[at] = replace(declared, fields=tables[at].fields)
    history.declaration = replace(history.declaration, tables=tuple(tables))


def declare_metadata(
    history: Any, refresh: Refresh | None, table: int, what: str, value: str, on_conflict: Any
) -> None:
    """The declaration of metadata changes.

    Args:
        what: a part of a column and the column's name, such as "caption k"; or
            "calculation", "hierarchy", "text", "tags", "permissions", "certify" or "owner".
        value: "A" or "B", for one of two values; "" if nothing is declared any more.
    """
    tables = list(history.declaration.tables)
    at, (part, _, column) = table % len(tables), what.partition(" ")
    keys: dict[str, Any] = {"metadata": MetadataPolicy(on_conflict)}
    match part:
        case "calculation":
            formula = f"COUNT([t1.{column}]) + {ord(value[:1] or ' ')}"
            keys["calculations"] = (Calculation(name="Margin", formula=formula),) if value else ()
        case "hierarchy":
            fields = ("t1.k", "t1.cursor")[:: -1 if value == "A" else 1]
            keys["hierarchies"] = (Members("Route", fields),) if value else ()
        case "text":
            keys["description"] = value or None
        case "tags":
            keys["tags"] = (value,) if value else ()
        case "certify":
            may = value and history.scenario.admin and history.declaration.reconcile
            keys["certify"] = "after_reconcile" if may else None
            keys["certification_note"] = "Equal" if may and value == "B" else None
        case "owner":
            may = value and history.scenario.admin
            keys["owner"] = {"A": "boss", "B": "eve"}[value] if may else None
        case "permissions":
            allowed = CAPABILITIES if value == "A" else CAPABILITIES[:1]
            keys["permissions"] = (Permission("All Users", allowed),) if value else ()
        case _:
            declared = {field.name: field for field in tables[at].fields}
            choices = {
                # Two fields of a data source cannot have the same caption.
                "caption": value and f"{value} {column} of {tables[at].name}",
                "format": {"A": "0.00", "B": "0.000"}.get(value, ""),
                "role": {"A": "dimension", "B": "measure"}.get(value),
                "aggregation": {"A": "min", "B": "max"}.get(value),
                "hidden": bool(value),
            }
            field = declared.get(column) or FieldMetadata(column)
            declared[column] = replace(field, **{part: choices.get(part, value)})
            tables[at] = replace(tables[at], fields=tuple(declared.values()))
    if keys.get("hierarchies", history.declaration.hierarchies):
        tables = [_in_one_folder(whole, column or "k") for whole in tables]
    history.declaration = replace(history.declaration, tables=tuple(tables), **keys)


_ROUTE = ("k", "cursor")


def _in_one_folder(table: Table, column: str) -> Table:
    """Put all fields of the hierarchy into the folder of a column.

    The table stays the same if the column is not in the hierarchy.
    """
    fields = {field.name: field for field in table.fields}
    if table.name != "t1" or column not in _ROUTE:
        return table
    folder = fields[column].folder if column in fields else ""
    for name in _ROUTE:
        fields[name] = replace(fields.get(name) or FieldMetadata(name), folder=folder)
    return replace(table, fields=tuple(fields.values()))


def relate(history: Any, refresh: Refresh | None, count: int, chain: bool) -> None:
    """More or fewer tables are declared, or the same tables with other relationships."""
    declared = {table.name: table for table in history.declaration.tables}
    tables = [declared.get(table.name) or table for table in history.scenario.all_tables]
    history.declaration = replace(history.declaration, **related(tables, count, chain=chain))


def place(history: Any, refresh: Refresh | None, name: str, project: str, taken: bool) -> None:
    """The data source is declared with another name and project.

    Args:
        taken: another user has a data source of that name there.
    """
    if taken:
        _publish_namesake(history, name, project)
    else:
        # The project must exist.
        history.other_user.project(project)
    # The user declares the place after the server has listed the project.
    history.tableau.pass_time(history.scenario.quirks["index_lag_seconds"])
    history.declaration = replace(history.declaration, name=name, project=project)


def _publish_namesake(history: Any, name: str, project: str) -> None:
    """Another user publishes a data source of this name, unless the project already has one."""
    luid = history.other_user.project(project)
    if (name, luid) not in [(d.name, d.project) for d in history.tableau.datasources()]:
        history.other_user.publishes_same_name(name, luid)
        note_users_data_source(history)


def adopt(
    history: Any, refresh: Refresh | None, change: str, edited: str, forgotten: bool, tables: int
) -> None:
    """Another user replaces our data source by their own, and the declaration adopts theirs.

    Args:
        change: a change of rows or columns in their data source; "" for the same data.
        edited: the metadata that the user has edited; "" for none.
        forgotten: our records of the first data source are lost.
        tables: the number of tables that are declared from then on; 0 for no change.
    """
    target = history.data_source()
    if target is None or history.requests.in_flight():
        return
    takes_stars = history.scenario.quirks["several_tables"] != "refused"
    if not takes_stars and len(json.loads(target.tables)) > 1:
        return
    before = State.of(history, target)
    history.other_user.takes(target, change, edited=edited)
    note_users_change(history, "takes", before)
    note_rows(history, note_users_data_source(history))
    history.declaration = replace(history.declaration, adopt=True)
    if tables:
        relate(history, refresh, tables, history.scenario.chain)
    if forgotten:
        history.journals["ours"].wipe()


def damage(
    history: Any,
    refresh: Refresh | None,
    what: str,
    table: int,
    file: int,
    newest: bool,
    again: Sequence[Change],
) -> None:
    """A disk damages a stored version of a model.

    Args:
        what: "cut" or "removed" for one of its files, or "manifest".
        file: the number of that file.
        newest: the newest version is damaged, not the published one.
        again: the changes with which the model is written again; empty if it is not.
    """
    tables = history.declaration.tables
    model = tables[table % len(tables)].model
    number = history.store.number(model)
    if not newest:
        number = _history_of_ours(history).published_version(model) or number
    history.note(f"version {number} of {model} is damaged")
    history.store.damage(model, number, what, file=file)
    if again:
        materialize(history, refresh, table, again, True)


def failed_refreshes(history: Any, refresh: Refresh | None, count: int, killed: bool) -> None:
    """Many refreshes fail, one after another. They change no rows.

    Each refresh leaves a claim. A refused refresh ends its claim. A killed refresh does not end its
    claim, and records again the request that the first killed refresh was about to send.
    """
    journal = history.journals["ours"]
    claim = _history_of_ours(history).claim
    is_live = claim and not journal.as_seen_by(owner_here("")).has_ended(claim)
    if is_live or history.requests.in_flight() or journal.later_at is not None:
        # The refreshes would only wait.
        return
    history.note(f"{count} refreshes are {'killed' if killed else 'refused'}")
    if killed:
        dies = TimedEvent("appended intent", 1, Event(kill, True))
        history.run(history.new_refresh(events=(dies,)), Asked(full=True))
        history.tableau.come_to_rest()
    writer, recent = journal.as_seen_by(owner_here("")), journal.history()
    for _ in range(count):
        number = recent.refresh + 1
        claim = Claim(refresh=number, owner=Owner(run_id=f"run {number}000"))
        journal.ended.add(claim.owner.run_id)
        ended = ClaimRelease(refresh=number, claim=claim.id)
        for record in (claim, *(_unsent_request(history, recent, claim) if killed else [ended])):
            recent = writer.append(lambda _, record=record: record, after=recent)


def _history_of_ours(history: Any) -> Records:
    """Our records; empty if a later release wrote the newest record."""
    journal = history.journals["ours"]
    return journal.history() if journal.later_at is None else Records()


def _unsent_request(history: Any, earlier: Records, claim: Claim) -> list[Record]:
    """The records of a refresh that was killed right before it sent the same request again."""
    if not earlier.intents or any(intent.job_id for intent in earlier.intents):
        return []
    # A refresh that may not list jobs waits until no job can run any more.
    history.tableau.pass_time(0 if history.scenario.admin else 700)
    lost = [
        intent.model_copy(update={"outcome": intent.outcome or Outcome.LOST})
        for intent in earlier.intents
    ]
    recovered = earlier.recovered
    for intent in lost:
        recovered = recovered.after(intent)
    again = {"refresh": claim.refresh, "step": 1, "request_id": str(uuid4()), "outcome": None}
    again |= {"recorded_at": history.tableau.now, "run_id": claim.owner.run_id}
    sent_again = earlier.intents[-1].model_copy(update=again)
    return [*lost, recovered.recorded_by(claim.refresh), sent_again]


def another_environment(
    history: Any, refresh: Refresh | None, options: Asked, comes_here: bool
) -> None:
    """Another environment of this deployment refreshes the same declaration, below `ROOT`.

    Args:
        comes_here: a user deletes our data source and moves the other environment's data source to
            its place. Then our refresh accepts everything.
    """
    if history.requests.in_flight():
        return
    # Unfinished requests of users, and their late time stamps, would look like changes by the other
    # environment.
    history.tableau.come_to_rest()
    if history.scenario.quirks["updates_move_stamp"] == "late":
        history.tableau.pass_time(history.scenario.quirks["late_stamp_seconds"])
    history.note("another environment refreshes")
    declared = in_environment(history.declaration, ROOT)
    journal = next(j for j in history.journals.values() if j.key == declared.key)
    other = history.new_refresh(publisher=journal.name)
    other = replace(other, declaration=declared, of_other_environment=True)
    before, luids = history.of_environment(ours=True), {*history.of_environment(ours=True)}
    tableau = history.tableau
    tableau.fate, tableau.on_job = lambda _: Fate(), lambda *_: None
    history.running.append(other)
    with suppress(RefreshError):
        options.carry_out(history.setup(other))
    history.running.pop()
    history.requests.watch()
    journal.ended.add(other.name)
    history.luids_elsewhere |= {*history.of_environment(ours=True)} - luids
    require(history.of_environment(ours=True) == before, "another environment changes ours")
    theirs = [d for d in tableau.datasources() if d.luid in history.luids_elsewhere]
    if comes_here and theirs:
        another_user(history, None, "deletes", "", 0)
        history.other_user.moves(theirs[0], history.declaration.project)
        history.declaration = replace(history.declaration, adopt=True)
        history.run(history.new_refresh(), Asked(accept=frozenset(Accept)))


def collect(history: Any, refresh: Refresh | None) -> None:
    """Old versions of all models are removed."""
    history.store.collect()


def time_passes(history: Any, refresh: Refresh | None, days: int, seconds: float) -> None:
    """Nothing happens for a while."""
    history.tableau.pass_time(days * 86400 + seconds)


def bad_answers(history: Any, refresh: Refresh | None, fault: QueryFault | Cut) -> None:
    """Some of the server's next answers about rows are old, broken, or lack rows."""
    history.tableau.control.add(fault)


def all_runs_end(history: Any, refresh: Refresh | None) -> None:
    """Dagster notices that killed runs have ended, or a user deletes those runs."""
    history.end_all_runs()

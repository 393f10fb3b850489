"""What the data source shows people: it is as declared, or a person has set it.

`shown` says what the server holds by place, and `wanted` what it is to hold. `Ledger.people` has
what people have set last, and `Ledger.agreed` what was declared when a refresh last settled it.
"""

from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.metadata.merge import CERTIFIED, NOTE
from tableau_pipeline.metadata.merge import shown as words
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.stateful.actors import Actor, Sending
from tableau_pipeline_tests.refresh.stateful.checks import oracle
from tableau_pipeline_tests.refresh.stateful.checks.observer import Look
from tableau_pipeline_tests.refresh.stateful.checks.oracle import Contents
from tableau_pipeline_tests.refresh.stateful.checks.promise import require
from tableau_pipeline_tests.refresh.stateful.server.contents import Place, Shown, shown_in
from tableau_sandbox.simulation import Datasource, Job


def wanted(declaration: Declaration, contents: Contents) -> Shown:
    """What a data source is to show where no person has set anything."""
    found: Shown = {}
    for table in declaration.tables:
        types = contents[table.model].schema
        for each in table.fields:
            usual = "measure" if types[each.name] in oracle.NUMBERS else "dimension"
            parts = {
                "caption": each.caption,
                "description": each.description,
                "format": each.format and f"n{each.format};-{each.format}",
                "role": each.role if each.role != usual else "",
                "aggregation": (each.aggregation or "").capitalize(),
                "hidden": "true" * each.hidden,
                "folder": each.folder,
            }
            place = ("field", declaration.published_name(table.name), each.name)
            found |= {(*place, part): value for part, value in parts.items() if value}
    first = declaration.published_name("t1")
    for each in declaration.calculations:
        found["calculation", each.name, "formula"] = each.formula.replace("[t1.", f"[{first}.")
    for each in declaration.hierarchies:
        fields = [name.replace("t1.", f"{first}.") for name in each.fields]
        found["hierarchy", each.name, "fields"] = " > ".join(fields)
    if declaration.description is not None:
        models = ", ".join(table.model for table in declaration.tables)
        found["about", "description"] = f"{declaration.description}\n\nBuilt from {models}."
    about = {"owner": declaration.owner, "certified": "yes" * bool(declaration.certify)}
    about["certification note"] = declaration.certification_note
    found |= {("about", name): value for name, value in about.items() if value}
    found |= {("tag", tag): "yes" for tag in declaration.tags}
    for rule in declaration.permissions:
        found |= {("permission", rule.group, name): "Allow" for name in rule.allow}
    return found


def check_work(history: Any, sending: Sending, before: Look, after: Look, job: Job) -> None:
    """What people have set before a sending is still there, or given up for good reasons."""
    actor, found, holds = sending.actor, after.datasource, after.holds or {}
    assert found is not None
    lost = {
        place: value
        for place, (value, moment) in _changed(history, after, in_files=True).items()
        if moment < sending.looked
        and before.shows.get(place, "") == value
        # Of a column that is gone nothing can be shown.
        and (place[0] != "field" or place[2] in holds.get(place[1], [()])[0])
    }
    actor.replaced += [place for place in lost if _may_replace(history, actor, found, place)]
    # If the publish before may have dropped it, nobody knows that a person took it away.
    want = wanted(actor.declaration, actor.contents) if history.unclear else {}
    lost = {
        place: value
        for place, value in lost.items()
        if place not in actor.replaced and (value or after.shows[place] != want.get(place))
    }
    if not lost:
        return
    # Only a sending takes over what no sending of ours has made or changed before.
    adopts, whole = found.luid not in history.ledger.left, job.parameters.get("publication", {})
    if adopts or whole.get("mode") == "overwrite":
        saved = [_tds_in(path) for path in _files(history.backups)]
        gone = [e for e in lost if not any(each.get(e, "") == lost[e] for each in saved)]
        require(not gone, f"the work {lost} is lost, of which {gone} is not saved")
    actor.lost_work = adopts and Accept.OVERWRITE not in actor.options.accept
    breaks = history.scenario.quirks["replace"] == "like-overwrite"
    require(breaks or Accept.OVERWRITE in actor.options.accept, f"the work {lost} is lost")


def check_about(history: Any, actor: Actor) -> None:
    """What people have said of the data source is not lost beside a sending either."""
    found = history.found()
    if found is None or actor.apart:
        return
    look = Look.at(history, found)
    lost = [*_changed(history, look, in_files=False)]
    actor.replaced += lost
    # A note goes with the certification, which is ours.
    goes = {*actor.touched, *([NOTE] if CERTIFIED not in look.shows else [])}
    wrong = [e for e in lost if e not in goes and not _may_replace(history, actor, found, e)]
    require(not wrong, f"{wrong} are no longer as people have set them: {look.shows}")


_IN_FILES = ("field", "calculation", "hierarchy")


def _changed(history: Any, look: Look, *, in_files: bool) -> dict[Place, tuple[str, int]]:
    """What is no longer as people have set it, with the moment when they did; it is told once."""
    people, changed = history.ledger.people, {}
    for (luid, place), (value, moment) in [*people.items()]:
        is_here = look.datasource and luid == look.datasource.luid
        is_here = is_here and (place[0] in _IN_FILES) is in_files
        if is_here and value is not None and look.shows.get(place, "") != value:
            people[luid, place] = None, moment
            # What is as agreed again, nobody has set.
            if value != history.ledger.agreed.get((luid, place), ""):
                changed[place] = value, moment
    return changed


def _may_replace(history: Any, actor: Actor, found: Datasource, place: Place) -> bool:
    """Whether both sides changed it, and the declaration is to win."""
    declared = actor.declaration
    want = wanted(declared, actor.contents).get(place)
    agreed = history.ledger.agreed.get((found.luid, place))
    is_new = want != agreed or place[0] == "permission" or history.unclear
    wins = declared.metadata.on_conflict == "replace"
    wins = wins and Accept.METADATA not in actor.options.accept
    return wins and want is not None and is_new


def check_metadata(history: Any, actor: Actor, report: Refreshed) -> None:
    """What nobody else has set is as it is declared; and what is not so, is told."""
    told = str((report.warnings, report.problems))
    lost = [e for e in actor.replaced if words(e) not in told and e not in actor.touched]
    require(not lost, f"{lost} are replaced, and nobody is told: {told}")
    found, ledger = history.found(), history.ledger
    if found is None or actor.wiped != actor.log.wiped:
        return
    shows, want = history.shows(found), wanted(actor.declaration, actor.contents)
    is_open = not history.unclear and Accept.METADATA not in actor.options.accept
    # Whether people came before or after what is newly declared, is not known.
    new = {place for place in want if want[place] != ledger.agreed.get((found.luid, place))}
    both = [place for place in actor.touched & new if (found.luid, place) in ledger.people]
    ledger.note_people(found.luid, dict.fromkeys(both))
    if Accept.TAKEOVER in actor.options.accept:
        ledger.note_people(found.luid, dict.fromkeys([*shows, *want]))
    unknown = not report.checkpoint or report.checkpoint.unreconciled
    if unknown and not ledger.agreed.get((found.luid, CERTIFIED)):
        # Only what was found equal is certified.
        want = {place: want[place] for place in want.keys() - {CERTIFIED, NOTE}}
    for place in (shows.keys() | want.keys()) - actor.touched:
        is_, be, key = shows.get(place, ""), want.get(place, ""), (found.luid, place)
        was = ledger.agreed.get(key, "")
        if is_ == be:
            # What a person had set before it was declared stays theirs.
            if be and be != was and ledger.people.get(key, ("", 0))[0] == be:
                ledger.first.add(key)
            elif be != was or key not in ledger.first:
                ledger.people.pop(key, None)
        elif key not in ledger.people:
            require(False, f"{place} is declared as {be!r}, and shown as {is_!r}; {told}")
        elif be and be != was and ledger.people[key][0] == is_ and is_open:
            policy = actor.declaration.metadata.on_conflict
            # A note that is replaced is seen once a person certifies it again.
            is_kept = policy == "keep" or (place == NOTE and CERTIFIED not in shows)
            require(is_kept, f"{place} stays {is_!r}, and not {be!r}, by {actor.declaration}")
            require(words(place) in told, f"that {place} is {is_!r}, not {be!r}, is not in {told}")
            continue
        ledger.agreed[key] = be


def _files(folder: Path) -> list[Path]:
    return [*folder.iterdir()] if folder.exists() else []


def _tds_in(path: Path) -> Shown:
    with ZipFile(path) as package:
        (name,) = (each for each in package.namelist() if each.endswith(".tds"))
        return shown_in(package.read(name))

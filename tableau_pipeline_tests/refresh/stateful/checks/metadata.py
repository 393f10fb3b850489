"""The checks of metadata: each item is as declared, or a user has set it.

`published_metadata` returns the items on the server, and `expected_metadata` returns the declared
items. `Requests.set_by_users` has the values that users set last. `Requests.settled` has the
declared values when a refresh last settled the items, that is, left no conflict about them.
"""

from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.metadata.merge import CERTIFIED, NOTE
from tableau_pipeline.metadata.merge import shown as words
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.stateful.checks.expected import NUMBERS, Contents
from tableau_pipeline_tests.refresh.stateful.checks.require import require
from tableau_pipeline_tests.refresh.stateful.checks.visibility import State
from tableau_pipeline_tests.refresh.stateful.refreshes import Refresh, Request
from tableau_pipeline_tests.refresh.stateful.server.contents import Item, Metadata, metadata_in
from tableau_sandbox.simulation import Datasource, Job


def expected_metadata(declaration: Declaration, contents: Contents) -> Metadata:
    """The declared metadata, which must be published where no user has set another value."""
    items: Metadata = {}
    for table in declaration.tables:
        types = contents[table.model].schema
        for field in table.fields:
            usual = "measure" if types[field.name] in NUMBERS else "dimension"
            parts = {
                "caption": field.caption,
                "description": field.description,
                "format": field.format and f"n{field.format};-{field.format}",
                "role": field.role if field.role != usual else "",
                "aggregation": (field.aggregation or "").capitalize(),
                "hidden": "true" * field.hidden,
                "folder": field.folder,
            }
            column = ("field", declaration.published_name(table.name), field.name)
            items |= {(*column, part): value for part, value in parts.items() if value}
    fact = declaration.published_name("t1")
    for calculation in declaration.calculations:
        formula = calculation.formula.replace("[t1.", f"[{fact}.")
        items["calculation", calculation.name, "formula"] = formula
    for hierarchy in declaration.hierarchies:
        fields = [name.replace("t1.", f"{fact}.") for name in hierarchy.fields]
        items["hierarchy", hierarchy.name, "fields"] = " > ".join(fields)
    if declaration.description is not None:
        models = ", ".join(table.model for table in declaration.tables)
        items["about", "description"] = f"{declaration.description}\n\nBuilt from {models}."
    about = {"owner": declaration.owner, "certified": "yes" * bool(declaration.certify)}
    about["certification note"] = declaration.certification_note
    items |= {("about", name): value for name, value in about.items() if value}
    items |= {("tag", tag): "yes" for tag in declaration.tags}
    for rule in declaration.permissions:
        items |= {("permission", rule.group, name): "Allow" for name in rule.allow}
    return items


def check_edits(history: Any, request: Request, before: State, after: State, job: Job) -> None:
    """Check that a request kept users' edits in the file, or was allowed to drop them.

    Raises:
        CheckFailed: a request lost edits without permission, or without a saved copy.
    """
    refresh, datasource, rows = request.refresh, after.datasource, after.rows or {}
    assert datasource is not None
    lost = {
        item: value
        for item, (value, moment) in _changed(history, after, in_files=True).items()
        if moment < request.looked_at
        and before.metadata.get(item, "") == value
        # The metadata of a column are removed together with the column.
        and (item[0] != "field" or item[2] in rows.get(item[1], [()])[0])
    }
    # An earlier publish may have dropped the item, or another declaration may have set it. In both
    # cases, a missing item does not prove that a user removed it.
    declared = {}
    if history.metadata_unclear or Accept.TAKEOVER in refresh.options.accept:
        declared = expected_metadata(refresh.declaration, refresh.contents)
    lost = {
        item: value
        for item, value in lost.items()
        if value or after.metadata[item] != declared.get(item)
    }
    refresh.replaced += [item for item in lost if _may_replace(history, refresh, datasource, item)]
    lost = {item: value for item, value in lost.items() if item not in refresh.replaced}
    if not lost:
        return
    # The first request to a data source adopts it, or takes it over.
    is_first = datasource.luid not in history.requests.rows_left
    if is_first or job.parameters.get("publication", {}).get("mode") == "overwrite":
        saved = [_metadata_of_file(path) for path in _files(history.backups)]
        gone = [i for i in lost if not any(file.get(i, "") == lost[i] for file in saved)]
        require(not gone, f"the work {lost} is lost, and {gone} is not saved")
    refresh.lost_edits = is_first and Accept.OVERWRITE not in refresh.options.accept
    breaks = history.scenario.quirks["replace"] == "like-overwrite"
    require(breaks or Accept.OVERWRITE in refresh.options.accept, f"the work {lost} is lost")


def check_properties(history: Any, refresh: Refresh) -> None:
    """Check that users' edits outside of the file, such as tags and the owner, are not lost.

    Raises:
        CheckFailed: the refresh replaced an edit that it may not replace.
    """
    datasource = history.data_source()
    if datasource is None or refresh.of_other_environment:
        return
    state = State.of(history, datasource)
    lost = [*_changed(history, state, in_files=False)]
    refresh.replaced += lost
    # A refresh may withdraw a certification, which removes the note as well.
    may_go = {*refresh.touched_by_users, *([NOTE] if CERTIFIED not in state.metadata else [])}
    wrong = [
        item
        for item in lost
        if item not in may_go and not _may_replace(history, refresh, datasource, item)
    ]
    require(not wrong, f"{wrong} are no longer as people have set them: {state.metadata}")


_IN_FILES = ("field", "calculation", "hierarchy", "filter")


def _changed(history: Any, state: State, *, in_files: bool) -> dict[Item, tuple[str, int]]:
    """The items that have lost the value that a user set. Each loss is reported once.

    Returns:
        For each item, the user's value, and the moment when the user set the value.
    """
    set_by_users, changed = history.requests.set_by_users, {}
    for (luid, item), (value, moment) in [*set_by_users.items()]:
        is_here = state.datasource and luid == state.datasource.luid
        is_here = is_here and (item[0] in _IN_FILES) is in_files
        if is_here and value is not None and state.metadata.get(item, "") != value:
            set_by_users[luid, item] = None, moment
            # A user who sets the declared value again has changed nothing.
            if value != history.requests.settled.get((luid, item), ""):
                changed[item] = value, moment
    return changed


def _may_replace(history: Any, refresh: Refresh, datasource: Datasource, item: Item) -> bool:
    """Whether both sides changed an item, and the declaration wins."""
    declaration = refresh.declaration
    declared = expected_metadata(declaration, refresh.contents).get(item)
    settled = history.requests.settled.get((datasource.luid, item))
    is_new = declared != settled or item[0] == "permission" or history.metadata_unclear
    # After a takeover, a deployment has no record of items that another deployment settled.
    is_new |= Accept.TAKEOVER in refresh.options.accept
    wins = declaration.metadata.on_conflict == "replace"
    wins = wins and Accept.METADATA not in refresh.options.accept
    return wins and declared is not None and is_new


def check_metadata(history: Any, refresh: Refresh, report: Refreshed) -> None:
    """Check that all items are as declared or as users set them, and that exceptions are reported.

    Raises:
        CheckFailed: an item has another value, or no message reports the exception.
    """
    text, by_users = str((report.warnings, report.problems)), refresh.touched_by_users
    lost = [item for item in refresh.replaced if words(item) not in text and item not in by_users]
    require(not lost, f"{lost} are replaced without a message: {text}")
    datasource, requests = history.data_source(), history.requests
    if datasource is None or refresh.wiped != refresh.journal.wiped:
        return
    luid, shown = datasource.luid, history.metadata_of(datasource)
    declared = expected_metadata(refresh.declaration, refresh.contents)
    # Users may have set an item before or after its new declaration, so their value is uncertain.
    new = {item for item in declared if declared[item] != requests.settled.get((luid, item))}
    both = [item for item in by_users & new if (luid, item) in requests.set_by_users]
    requests.note_set_by_users(luid, dict.fromkeys(both))
    if Accept.TAKEOVER in refresh.options.accept:
        requests.note_origin_unknown(luid, {*shown, *declared})
    unreconciled = not report.checkpoint or report.checkpoint.unreconciled
    if unreconciled and not requests.settled.get((luid, CERTIFIED)):
        # Only reconciled data are certified.
        declared = {item: declared[item] for item in declared.keys() - {CERTIFIED, NOTE}}
    if CERTIFIED not in shown and (luid, CERTIFIED) in requests.set_by_users:
        # The server shows our note only after a user has certified the data source again.
        declared = {item: declared[item] for item in declared.keys() - {NOTE}}
    if "Its metadata is not set yet" in text or "Its metadata may not be set yet" in text:
        # A user has changed the data source in between, or the metadata cannot be read: the next
        # refresh sets the missing metadata.
        by_users = by_users | declared.keys()
    for item in (shown.keys() | declared.keys()) - by_users:
        _check_item(history, refresh, (luid, item), shown, declared, text)


def _check_item(
    history: Any,
    refresh: Refresh,
    key: tuple[str, Item],
    shown: Metadata,
    declared: Metadata,
    text: str,
) -> None:
    """Check one item. Note whether the item is settled, or belongs to a user."""
    requests, item = history.requests, key[1]
    is_, be, was = shown.get(item, ""), declared.get(item, ""), requests.settled.get(key, "")
    must_tell = not history.metadata_unclear and Accept.METADATA not in refresh.options.accept
    if is_ == be:
        # A value that a user set before its declaration still belongs to the user.
        if be and be != was and requests.set_by_users.get(key, ("", 0))[0] == be:
            requests.set_before_declared.add(key)
        elif be != was or key not in requests.set_before_declared:
            requests.set_by_users.pop(key, None)
    elif key not in requests.set_by_users:
        require(False, f"{item} is declared as {be!r}, and shown as {is_!r}; {text}")
    elif be and be != was and requests.set_by_users[key][0] == is_ and must_tell:
        policy = refresh.declaration.metadata.on_conflict
        # The server shows a replaced note only after a user has certified the data source again.
        may_stay = policy == "keep" or (item == NOTE and CERTIFIED not in shown)
        require(may_stay, f"{item} stays {is_!r} instead of {be!r} in {refresh.declaration}")
        require(words(item) in text, f"no message says that {item} is {is_!r}, not {be!r}: {text}")
        return
    requests.settled[key] = be


def _files(folder: Path) -> list[Path]:
    return [*folder.iterdir()] if folder.exists() else []


def _metadata_of_file(path: Path) -> Metadata:
    with ZipFile(path) as package:
        (name,) = (name for name in package.namelist() if name.endswith(".tds"))
        return metadata_in(package.read(name))

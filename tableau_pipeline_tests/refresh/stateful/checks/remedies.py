"""The remedies that refusals name. A remedy does exactly what the refusal says."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tableau_pipeline.core.fields import MetadataPolicy
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful import events
from tableau_pipeline_tests.refresh.stateful.models.changes import repaired
from tableau_pipeline_tests.refresh.stateful.scenarios import OPEN, related
from tableau_pipeline_tests.refresh.support.asked import Asked

_ACCEPT = re.compile(r"accept: \[(\w+)\]")


def follow(history: Any, reason: str, options: Asked) -> tuple[set[str], Asked]:
    """Do what each sentence of a refusal says.

    Returns:
        The names of the remedies, and the options of the next run. The set is empty if no sentence
        names a remedy.
    """
    done = set()
    for line in reason.splitlines():
        for pattern, remedy in _REMEDIES.items():
            if match := re.search(pattern, line):
                history.note(f"a person does as it says: {remedy.__name__.strip('_')}")
                remedy(history, *match.groups())
                done.add(remedy.__name__.strip("_"))
                break
        if match := _ACCEPT.search(line):
            accepted = Accept(match[1])
            options = replace(options, accept=options.accept | {accepted})
            done.add(f"accept {accepted}")
    return done, options


def _lower_guard(history: Any, table: str) -> None:
    """Open the guard, so that later runs need not accept the loss again."""
    tables = tuple(
        replace(declared, guard=OPEN) if declared.name == table else declared
        for declared in history.declaration.tables
    )
    history.declaration = replace(history.declaration, tables=tables)


def _write_models(history: Any, *_: str) -> None:
    """Write all models again, with valid keys and cursors, and with every partition."""
    for model in history.models.values():
        model.become(repaired(model))
        history.store.store(model, again=True)
    history.store_feeds()


def _relate_what_is_there(history: Any, *_: str) -> None:
    declared = history.declaration
    history.declaration = replace(declared, **related(declared.tables, 1, chain=False))


def _drop_calculations(history: Any, *_: str) -> None:
    history.declaration = replace(history.declaration, calculations=())


def _drop_format(history: Any, name: str | None, column: str) -> None:
    declared = history.declaration
    tables = tuple(
        replace(
            table,
            fields=tuple(
                replace(field, format="") if field.name == column else field
                for field in table.fields
            ),
        )
        if name in (None, table.name)
        else table
        for table in declared.tables
    )
    history.declaration = replace(declared, tables=tables)


def _keep_work(history: Any) -> None:
    history.declaration = replace(history.declaration, metadata=MetadataPolicy("keep"))


def _adopt(history: Any) -> None:
    history.declaration = replace(history.declaration, adopt=True)


def _delete_namesake(history: Any, *_: str) -> None:
    name, ours = history.declaration.name.casefold(), history.data_source()
    # Another declaration may have published last. Our records name our data source.
    luid = history.journals["ours"].history().recovered.luid or (ours and ours.luid)
    for datasource in history.tableau.datasources():
        if datasource.name.casefold() == name and datasource.luid != luid:
            history.other_user.deletes(datasource)


def _untag_others(history: Any) -> None:
    tag, ours = history.declaration.tag, history.data_source()
    for datasource in history.tableau.datasources():
        if tag in datasource.tags and datasource != ours:
            history.other_user.untags(datasource, tag)


def _rename_elsewhere(history: Any) -> None:
    for datasource in history.tableau.datasources():
        if (luid := datasource.luid) in history.luids_elsewhere:
            history.other_user.renames(datasource, f"Of another environment {luid[:4]}")


def _remove_filters(history: Any) -> None:
    events.another_user(history, None, "edits", "unfilter k", 0)


def _give_back(history: Any, luid: str | None = None) -> None:
    ours = history.data_source()
    if luid and not (ours and ours.luid == luid):
        # The refusal names the data source of another user, which is in the way.
        _delete_namesake(history)
        return
    events.another_user(history, None, "gives", "worker", 0)


_REMEDIES: Mapping[str, Callable[..., None]] = {
    r'Table "(\w+)": .* fewer than guard\.min_rows .* accept: \[shrink\]': _lower_guard,
    r"Several data sources carry the tag .* Remove the tag": _untag_others,
    r"is published by another environment .* rename it": _rename_elsewhere,
    r"exists .* did not publish.* set adopt: true": _adopt,
    r"is to be (?:renamed|moved) .* rename or delete that one": _delete_namesake,
    r"failed: 409015 .* Rename or delete the data source that is in the way": _delete_namesake,
    r"set on_conflict to keep": _keep_work,
    r"would lose .* change or remove it on the server first": _remove_filters,
    r"The format of (?:(\w+)\.)?(\w+): .* Correct or remove it": _drop_format,
    r'"t1\.\w+" is neither a column nor': _drop_calculations,
    r"Relationship .*: table \"\w+\" has no column": _relate_what_is_there,
    r"is NULL in \d|is not unique|its partition|cannot be read: [^:]+\.(?:parquet|json)\b": (
        _write_models
    ),
    r"data source ([0-9a-f-]{36}) failed: 4030\d\d ": _give_back,
    r"failed: 4030\d\d .* Give this user|Give the user its ownership": _give_back,
}

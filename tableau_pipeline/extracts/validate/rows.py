"""Check with hyperd the conditions on the rows of the models before anything is sent."""

from collections.abc import Collection, Iterator, Mapping

from tableauhyperapi import HyperProcess

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.policies import Append, Diff
from tableau_pipeline.errors import Check, RefusedError
from tableau_pipeline.extracts.desired import Models, table_source
from tableau_pipeline.extracts.updates.change import Change
from tableau_pipeline.extracts.validate.relationships import relationship_problems
from tableau_pipeline.hyper.keys import key_problem, null_problem
from tableau_pipeline.hyper.tables import TableSource


def check_rows(
    hyper: HyperProcess,
    declaration: Declaration,
    models: Models,
    desired: Mapping[str, TableContent],
    *,
    tables: Collection[str],
    changes: Mapping[str, Change] | None = None,
    known: Collection[str] = (),
) -> None:
    """Refuse NULL or repeated keys, and NULL cursors, in these tables.

    A repeated key on the one side of a relationship makes sums wrong. A repeated key of a `diff`,
    or a NULL in a key or cursor, leaves open which published row is meant.

    Args:
        changes: the tables, if they are updated. In their published version, the keys of
            relationships were unique.
        known: tables whose published version met the condition on its key or cursor. The keys of a
            `diff` are not checked: the update finds out which are new.

    Raises:
        RefusedError: names the tables, the columns and sample values.
    """
    every = sources(declaration, models, desired)
    checked = {name: each for name, each in every.items() if name in tables}
    problems = [*relationship_problems(hyper, declaration, checked, changes or {})]
    updated = {name: each for name, each in (changes or {}).items() if name in known}
    problems += _policy_problems(hyper, declaration, checked, updated)
    if problems:
        found = "\n".join(problems)
        raise RefusedError(found, {Check.KEYS: found})


def sources(
    declaration: Declaration, models: Models, desired: Mapping[str, TableContent]
) -> dict[str, TableSource]:
    """Return the desired rows of each table."""
    return {
        table.name: table_source(table.name, models[table.model], desired[table.name].cutoff)
        for table in declaration.tables
    }


def _policy_problems(
    hyper: HyperProcess,
    declaration: Declaration,
    checked: Mapping[str, TableSource],
    updated: Mapping[str, Change],
) -> Iterator[str]:
    for table in declaration.tables:
        if table.name not in checked:
            continue
        rows, change = checked[table.name], updated.get(table.name)
        match table.policy:
            case Diff(key):
                if not change and (problem := key_problem(hyper, rows, key)):
                    yield (
                        f"refresh: diff: {problem}. The key must identify every row: fix the "
                        "model, or name more columns in the key"
                    )
            case Append(cursor):
                if change and change.old:
                    rows = change.source(change.unshared(change.new))
                if problem := null_problem(hyper, rows, [cursor]):
                    yield (
                        f"refresh: append: {problem}. Every row needs a cursor: fix the model, or "
                        "choose another refresh policy"
                    )
            case _:
                pass

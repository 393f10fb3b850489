"""Check with hyperd the conditions on the rows of the models before anything is sent."""

from collections.abc import Collection, Iterator, Mapping

from tableauhyperapi import HyperProcess

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.policies import Append, Diff
from tableau_pipeline.errors import Check, RefusedError
from tableau_pipeline.extracts.desired import Models, source
from tableau_pipeline.hyper.keys import key_problem, null_problem, orphans
from tableau_pipeline.hyper.tables import TableSource


def check_rows(
    hyper: HyperProcess,
    declaration: Declaration,
    models: Models,
    desired: Mapping[str, TableContent],
    *,
    tables: Collection[str],
    identified: Collection[str] = (),
) -> None:
    """Refuse NULL or repeated keys, and NULL cursors, in these tables.

    A repeated key on the one side of a relationship makes sums wrong. A repeated key of a `diff`,
    or a NULL in a key or cursor, leaves open which published row is meant.

    Args:
        identified: tables whose `diff` key is already known to identify every row.

    Raises:
        RefusedError: names the tables, the columns and sample values.
    """
    every = _sources(declaration, models, desired)
    sources = {name: each for name, each in every.items() if name in tables}
    problems = [*_relationship_problems(hyper, declaration, sources)]
    doubtful = {name: each for name, each in sources.items() if name not in identified}
    problems += _policy_problems(hyper, declaration, doubtful)
    if problems:
        found = "\n".join(problems)
        raise RefusedError(found, {Check.KEYS: found})


def count_orphans(
    hyper: HyperProcess,
    declaration: Declaration,
    models: Models,
    desired: Mapping[str, TableContent],
    *,
    tables: Collection[str],
) -> dict[str, int]:
    """Count the rows without a partner in the other table, by relationship; only if there are any.

    Tableau shows them without the fields of the other table. That deserves a warning, but is no
    error.

    Args:
        tables: the tables that change.
    """
    sources = _sources(declaration, models, desired)
    found = {
        str(edge): orphans(hyper, sources[edge.many], sources[edge.one], edge.on)
        for edge in declaration.relationships
        if {edge.many, edge.one}.intersection(tables)
    }
    return {edge: count for edge, count in found.items() if count}


def _sources(
    declaration: Declaration, models: Models, desired: Mapping[str, TableContent]
) -> dict[str, TableSource]:
    return {
        table.name: source(table.name, models[table.model], desired[table.name].cutoff)
        for table in declaration.tables
    }


def _relationship_problems(
    hyper: HyperProcess, declaration: Declaration, sources: Mapping[str, TableSource]
) -> Iterator[str]:
    for edge in declaration.relationships:
        # The many side may repeat its values, so a change of it cannot break the relationship.
        if edge.one not in sources:
            continue
        if problem := key_problem(hyper, sources[edge.one], edge.key):
            yield (
                f"Relationship {edge}: {problem}. The one side of a relationship must be unique: "
                "fix the model, or turn the relationship round"
            )


def _policy_problems(
    hyper: HyperProcess, declaration: Declaration, sources: Mapping[str, TableSource]
) -> Iterator[str]:
    for table in declaration.tables:
        if table.name not in sources:
            continue
        match table.policy:
            case Diff(key):
                if problem := key_problem(hyper, sources[table.name], key):
                    yield (
                        f"refresh: diff: {problem}. The key must identify every row: fix the "
                        "model, or name more columns in the key"
                    )
            case Append(cursor):
                if problem := null_problem(hyper, sources[table.name], [cursor]):
                    yield (
                        f"refresh: append: {problem}. Every row needs a cursor: fix the model, or "
                        "choose another refresh policy"
                    )
            case _:
                pass

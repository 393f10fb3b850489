"""Check the relationships between tables with hyperd: unique keys, and rows without a partner.

In an update, only the rows that came or went are looked at, and the keys that they point to.
"""

from collections.abc import Iterator, Mapping

from tableauhyperapi import HyperProcess

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.extracts.updates.change import Change
from tableau_pipeline.hyper.keys import key_problem, orphans, shared_key_problem
from tableau_pipeline.hyper.parquet.rows import rows
from tableau_pipeline.hyper.tables import Relationship, TableSource


def relationship_problems(
    hyper: HyperProcess,
    declaration: Declaration,
    sources: Mapping[str, TableSource],
    changes: Mapping[str, Change],
) -> Iterator[str]:
    """Say which relationships have repeated or NULL keys on their one side, among these tables.

    Args:
        changes: tables that are updated; their keys were unique in the published version.
    """
    for edge in declaration.relationships:
        # The many side may repeat its values, so a change of it cannot break the relationship.
        if edge.one not in sources:
            continue
        change = changes.get(edge.one)
        if change and change.old:
            problem = _new_key_problem(hyper, edge, change)
        else:
            problem = key_problem(hyper, sources[edge.one], edge.key)
        if problem:
            yield (
                f"Relationship {edge}: {problem}. The one side of a relationship must be unique: "
                "fix the model, or turn the relationship round"
            )


def count_orphans(
    hyper: HyperProcess,
    declaration: Declaration,
    sources: Mapping[str, TableSource],
    *,
    changes: Mapping[str, Change],
    known: Mapping[str, int],
) -> dict[str, int]:
    """Count the rows without a partner in the other table, by relationship of changed tables.

    Tableau shows them without the fields of the other table. That deserves a warning, but is no
    error.

    Args:
        changes: the tables that are updated; {} if the whole file is published.
        known: the counts of what is published; relationships without orphans may be left out.
    """
    edges = declaration.relationships
    if not changes:
        return {str(edge): _all_orphans(hyper, edge, sources) for edge in edges}
    return {
        str(edge): _orphans(hyper, edge, sources, changes=changes, known=known.get(str(edge), 0))
        for edge in edges
        if {edge.many, edge.one}.intersection(changes)
    }


def _new_key_problem(hyper: HyperProcess, edge: Relationship, change: Change) -> str | None:
    came = change.source(change.unshared(change.new))
    if problem := key_problem(hyper, came, edge.key):
        return problem
    if not _changed_keys(hyper, edge, change):
        return None
    return shared_key_problem(hyper, came, change.source(change.shared), edge.key)


def _all_orphans(
    hyper: HyperProcess, edge: Relationship, sources: Mapping[str, TableSource]
) -> int:
    return orphans(hyper, rows(sources[edge.many]), rows(sources[edge.one]), edge.on)


def _orphans(
    hyper: HyperProcess,
    edge: Relationship,
    sources: Mapping[str, TableSource],
    *,
    changes: Mapping[str, Change],
    known: int,
) -> int:
    many, one = changes.get(edge.many), changes.get(edge.one)
    if one and (one.old is None or _changed_keys(hyper, edge, one)):
        return _all_orphans(hyper, edge, sources)
    if many is None:
        return known
    if many.old is None or not many.shared:
        return _all_orphans(hyper, edge, sources)
    partners = rows(sources[edge.one])
    came = orphans(hyper, many.came(), partners, edge.on)
    return known + came - orphans(hyper, many.gone(), partners, edge.on)


def _changed_keys(hyper: HyperProcess, edge: Relationship, change: Change) -> bool:
    """Whether the one side has lost a key or has a new one."""
    same = [(name, name) for name in edge.key]
    came, gone = change.came(), change.gone()
    return bool(orphans(hyper, came, gone, same) or orphans(hyper, gone, came, same))

"""Schema changes: what readers of a data source would notice, and whether it is allowed."""

from collections.abc import Mapping

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import SchemaPolicy

Tables = Mapping[str, TableContent]


def schema_changes(desired: Tables, base: Tables) -> list[str]:
    """All differences between the published and the desired schema, one phrase each."""
    return [phrase for phrase, _ in _changes(desired, base)]


def schema_problems(desired: Tables, base: Tables, policy: SchemaPolicy) -> list[str]:
    """Return a sentence with all differences that the policy does not allow; [] if none."""
    changes = _changes(desired, base)
    if policy == "publish":
        return []
    refused = [phrase for phrase, additive in changes if policy == "refuse" or not additive]
    if not refused:
        return []
    return [
        f"The schema changed: {'; '.join(refused)}. on_schema_change: {policy} refuses that. To "
        "publish it all the same, run once with accept: [schema]; otherwise, correct what produces "
        "the data"
    ]


def _changes(desired: Tables, base: Tables) -> list[tuple[str, bool]]:
    """Pairs of a change, as a phrase, and whether it only adds something."""
    changes = [(f'table "{name}" is new', True) for name in _missing(desired, base)]
    changes += [(f'table "{name}" is gone', False) for name in _missing(base, desired)]
    for name, table in desired.items():
        if published := base.get(name):
            changes += _column_changes(name, table, published)
    return changes


def _missing(these: Tables, those: Tables) -> list[str]:
    return [name for name in these if name not in those]


def _column_changes(table: str, now: TableContent, before: TableContent) -> list[tuple[str, bool]]:
    # Readers do not see the order of columns, so a new order is no change of the schema.
    new = {column.name: column.type for column in now.columns}
    old = {column.name: column.type for column in before.columns}
    return [
        *((f"{table}.{name} is new ({new[name]})", True) for name in new if name not in old),
        *((f"{table}.{name} is gone ({old[name]})", False) for name in old if name not in new),
        *(
            (f"{table}.{name} was {old[name]} and is {new[name]}", False)
            for name in new
            if name in old and old[name] != new[name]
        ),
    ]

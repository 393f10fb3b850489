"""Compare the published tables and columns with the desired ones; refuse forbidden changes."""

from collections.abc import Mapping, Sequence

from tableau_pipeline.core.declaration import Declaration, SchemaPolicy
from tableau_pipeline.hyper.types import Column, hyper_type
from tableau_pipeline.outcome import Accept, Check, Code, Refusal

# The columns of each table, by table name.
ColumnsByTable = Mapping[str, Sequence[Column]]


def layout_changes(
    found: Mapping[str, Mapping[str, str]],
    declaration: Declaration,
    desired: Mapping[str, Sequence[Column]],
) -> list[str]:
    """Return the differences between the published tables and the tables to publish.

    Args:
        found: for each published table, the SQL types of its columns, by column name.

    Returns:
        a phrase for each difference.
    """
    before = {(table, name): type_ for table in found for name, type_ in found[table].items()}
    after = {
        (declaration.published_name(name), column.name): hyper_type(column, table=name)
        for name, columns in desired.items()
        for column in columns
    }
    return [
        *(f"{'.'.join(key)} ({before[key]}) would go" for key in before if key not in after),
        *(f"{'.'.join(key)} ({after[key]}) is new" for key in after if key not in before),
        *(
            f"{'.'.join(key)} is {before[key]} and would be {after[key]}"
            for key in after
            if key in before and before[key] != after[key]
        ),
    ]


def schema_changes(desired: ColumnsByTable, base: ColumnsByTable) -> dict[str, bool]:
    """Return the differences from the published schema; True marks an addition to the schema."""
    changes = {f'table "{name}" is new': True for name in desired if name not in base}
    changes |= {f'table "{name}" is gone': False for name in base if name not in desired}
    for table in (shared for shared in desired if shared in base):
        # Do not compare the order of columns, because readers do not see it.
        new, old = (
            {column.name: column.type for column in columns[table]} for columns in (desired, base)
        )
        for name in dict.fromkeys([*new, *old]):
            if name not in old:
                changes[f"{table}.{name} is new ({new[name]})"] = True
            elif name not in new:
                changes[f"{table}.{name} is gone ({old[name]})"] = False
            elif new[name] != old[name]:
                changes[f"{table}.{name} was {old[name]} and is {new[name]}"] = False
    return changes


def schema_problems(
    desired: ColumnsByTable, base: ColumnsByTable, policy: SchemaPolicy
) -> list[Refusal]:
    """Return one refusal with all differences that the policy forbids; [] if it forbids none."""
    changes = schema_changes(desired, base)
    refused = [
        change for change, only_adds in changes.items() if policy == "refuse" or not only_adds
    ]
    if policy == "publish" or not refused:
        return []
    return [
        Refusal(
            f"The schema changed: {'; '.join(refused)}. on_schema_change: {policy} refuses that",
            Code.SCHEMA_CHANGED,
            Accept.SCHEMA,
            Check.SCHEMA,
            remedy="To publish it all the same, run once with accept: [schema]; otherwise, correct "
            "what produces the data",
            details={"changes": refused},
        )
    ]

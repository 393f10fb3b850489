"""In what published tables and columns differ from those to publish, and what may change."""

from collections.abc import Mapping, Sequence

from tableau_pipeline.core.declaration import Declaration, SchemaPolicy
from tableau_pipeline.hyper.types import Column, hyper_type
from tableau_pipeline.outcome import Accept, Check, Code, Refusal

# The columns of each table.
ColumnsByTable = Mapping[str, Sequence[Column]]


def layout_changes(
    found: Mapping[str, Mapping[str, str]],
    declaration: Declaration,
    desired: Mapping[str, Sequence[Column]],
) -> list[str]:
    """In what the tables of a published file differ from those to publish, as phrases.

    Args:
        found: the SQL types of the columns, by table and column.
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
    """All differences between the published and the desired schema, and whether each only adds."""
    changes = {f'table "{name}" is new': True for name in desired if name not in base}
    changes |= {f'table "{name}" is gone': False for name in base if name not in desired}
    for table in (each for each in desired if each in base):
        # Readers do not see the order of columns, so a new order is no change of the schema.
        new, old = ({c.name: c.type for c in each[table]} for each in (desired, base))
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
    """Return a refusal with all differences that the policy does not allow; [] if none."""
    changes = schema_changes(desired, base)
    refused = [each for each, only_adds in changes.items() if policy == "refuse" or not only_adds]
    if policy == "publish" or not refused:
        return []
    text = (
        f"The schema changed: {'; '.join(refused)}. on_schema_change: {policy} refuses that. To "
        "publish it all the same, run once with accept: [schema]; otherwise, correct what produces "
        "the data"
    )
    return [Refusal(text, Code.SCHEMA_CHANGED, Accept.SCHEMA, Check.SCHEMA)]

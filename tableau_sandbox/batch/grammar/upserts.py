from tableau_sandbox.batch.conditions import (
    Always,
    Comparison,
    Condition,
    Junction,
    column_pairs,
    predicates,
)
from tableau_sandbox.batch.errors import GrammarError


def check_upsert(condition: Condition) -> None:
    """Refuse conditions that do not determine which rows an upsert updates and inserts.

    With the remaining conditions, no two source rows with different keys match one target row. The
    columns of a key may have different names in the two tables. Constants restrict the rows that
    match.

    Raises:
        GrammarError: the condition does not determine them.
    """
    if not _is_conjunction(condition):
        raise GrammarError("the condition of an 'upsert' may combine comparisons by 'and' only")
    if any(
        found.comparison not in (Comparison.EQ, Comparison.IS) for found in predicates(condition)
    ):
        raise GrammarError("the condition of an 'upsert' may compare by 'eq' and 'is' only")
    if not column_pairs(condition):
        raise GrammarError(
            "the condition of an 'upsert' must compare key columns of the two tables"
        )


def _is_conjunction(condition: Condition) -> bool:
    if isinstance(condition, Junction):
        return condition.all_of and all(_is_conjunction(arg) for arg in condition.args)
    return not isinstance(condition, Always)

from tableau_pipeline.sandbox.batch.conditions import (
    Always,
    ColumnPair,
    Comparison,
    Condition,
    Junction,
    Side,
    column_pairs,
    columns_of,
    predicates,
)
from tableau_pipeline.sandbox.batch.errors import GrammarError


def check_upsert(condition: Condition) -> None:
    """Refuse conditions that do not determine which rows an upsert updates and inserts.

    With the remaining conditions, no upsert changes a column by which it finds its rows. So it can
    insert the rows without a match before or after it updates the others.

    Raises:
        GrammarError: the condition does not determine them.
    """
    if not _is_conjunction(condition):
        raise GrammarError("the condition of an 'upsert' may combine comparisons by 'and' only")
    if any(
        found.comparison not in (Comparison.EQ, Comparison.IS) for found in predicates(condition)
    ):
        raise GrammarError("the condition of an 'upsert' may compare by 'eq' and 'is' only")
    pairs = column_pairs(condition)
    if not pairs or not all(_is_same_name(pair) for pair in pairs):
        raise GrammarError(
            "the condition of an 'upsert' must compare key columns of the same name in both tables"
        )
    unpaired = columns_of(condition, Side.TARGET) - {pair.target for pair in pairs}
    if unpaired:
        raise GrammarError(
            "the condition of an 'upsert' compares target columns with constants that it does not"
            f" compare with the source: {', '.join(sorted(unpaired))}"
        )


def _is_conjunction(condition: Condition) -> bool:
    if isinstance(condition, Junction):
        return condition.all_of and all(_is_conjunction(arg) for arg in condition.args)
    return not isinstance(condition, Always)


def _is_same_name(pair: ColumnPair) -> bool:
    return pair.target == pair.source

from tableau_pipeline.actions.conditions import (
    Condition,
    Joint,
    Junction,
    Op,
    Predicate,
    predicates,
)


def upsert_problem(condition: Condition | None) -> str | None:
    """Return why a condition does not determine which rows an upsert updates and inserts.

    The columns of a key may have different names in the two tables. Constants restrict the rows
    that match; a source row without a match is inserted.
    """
    if not _is_conjunction(condition):
        return 'its condition must be key comparisons, target("k") == source("k"), combined by &'
    if any(each.op not in (Op.EQ, Op.IS) for each in predicates(condition)):
        return "its condition may compare by == and .is_() only: it finds rows by a key"
    if all(each.constant is not None for each in predicates(condition)):
        return "its condition must compare a key column of the target with one of the source"
    return None


def _is_conjunction(condition: Condition | None) -> bool:
    if isinstance(condition, Junction):
        return condition.joint is Joint.AND and all(_is_conjunction(arg) for arg in condition.args)
    return isinstance(condition, Predicate)

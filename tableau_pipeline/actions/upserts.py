from tableau_pipeline.actions.conditions import (
    Condition,
    Joint,
    Junction,
    Op,
    Predicate,
    Side,
    columns_of,
    predicates,
)


def upsert_problem(condition: Condition | None) -> str | None:
    """Return why a condition does not determine which rows an upsert updates and inserts."""
    if not _is_conjunction(condition):
        return 'its condition must be key comparisons, target("k") == source("k"), combined by &'
    pairs = [each for each in predicates(condition) if each.constant is None]
    if any(each.op not in (Op.EQ, Op.IS) for each in predicates(condition)):
        return "its condition may compare by == and .is_() only: it finds rows by a key"
    if not pairs or any(pair.target != pair.source for pair in pairs):
        return (
            "its condition must compare key columns of the same name in both tables: rename the "
            "column in the payload"
        )
    keys = {pair.target for pair in pairs}
    for name in columns_of(condition, Side.TARGET):
        # A row of the target that fails only such a comparison counts as missing, so its key would
        # be inserted a second time.
        if name not in keys:
            return (
                f'its condition compares target("{name}") with a constant only: compare it with '
                f'source("{name}") as well, or compare source("{name}") with the constant'
            )
    return None


def _is_conjunction(condition: Condition | None) -> bool:
    if isinstance(condition, Junction):
        return condition.joint is Joint.AND and all(_is_conjunction(arg) for arg in condition.args)
    return isinstance(condition, Predicate)

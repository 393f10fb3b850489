"""Row-level security: no refresh publishes rows without the filters that people made for them.

Updates change rows only. A publish brings the filters of the server in its `.tds`, or is refused.
"""

from collections.abc import Sequence
from typing import TypeVar

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.metadata.contents import read_metadata
from tableau_pipeline.outcome import Accept, Code, Refusal
from tableau_pipeline.refresh.decide import Changed, Facts, Plan, Publish, Refuse

_AnyPlan = TypeVar("_AnyPlan", bound=Plan | Changed)


def secured(plan: _AnyPlan, facts: Facts) -> _AnyPlan | Publish | Refuse:
    """Return the plan, so that it keeps who may see which rows; a refusal if it cannot."""
    if isinstance(plan, Refuse):
        return plan
    if refusal := _gone(plan, facts):
        return Refuse((refusal,))
    filters = facts.base.metadata.filters if facts.base.metadata else {}
    if not (filters and isinstance(plan, Publish)):
        return plan
    merge, brought = facts.metadata, {}
    if merge and merge.tds and not merge.problem:
        brought = read_metadata(merge.tds).filters
    if lost := [name for name in filters if brought.get(name) != filters[name]]:
        return Refuse((_would_go(facts, lost),))
    return Publish(PublishMode.OVERWRITE, plan.reason, merged=True)


def _gone(plan: Plan | Changed, facts: Facts) -> Refusal | None:
    """Return a refusal if filters are gone that the last refresh saw, or may be gone."""
    base, name, remedy = facts.base, facts.declaration.name, "run once with accept: [filter]"
    if base.exists and base.metadata is None:
        if not (base.filters and isinstance(plan, Publish)):
            return None
        problem = (
            f'"{name}" had {_listed(base.filters)}, and whether a publish would keep that is not '
            "known: its metadata cannot be read. Nothing was sent"
        )
        remedy = f"Let this user download it; or, to publish its rows without that, {remedy}"
        return Refusal(problem, Code.FILTER_LOST, Accept.FILTER, remedy=remedy)
    present = base.filters_found if base.exists else ()
    if not (gone := [each for each in base.filters if each not in present]):
        return None
    where = "is no longer in it" if base.exists else "went with it when it was deleted"
    problem = f'"{name}" had {_listed(gone)}, and that {where}. Nothing was sent'
    remedy = f"Put it back; or, if people may see the rows without it, {remedy}"
    details = {"filters": gone}
    return Refusal(problem, Code.FILTER_GONE, Accept.FILTER, remedy=remedy, details=details)


def _would_go(facts: Facts, lost: Sequence[str]) -> Refusal:
    problem = facts.metadata.problem if facts.metadata else None
    why = f": {problem}" if problem else ", as a field that it uses goes or changes"
    return Refusal(
        f'"{facts.declaration.name}" must be published in full, and that would lose '
        f"{_listed(lost)}{why}. Nothing was sent",
        Code.FILTER_LOST,
        remedy="Leave the fields that it uses as they are; or change or remove it on the server "
        "first",
        details={"filters": [*lost]},
    )


def _listed(filters: Sequence[str]) -> str:
    return " and ".join(filters)

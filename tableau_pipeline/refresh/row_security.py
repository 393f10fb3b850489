"""Row-level security: no refresh publishes rows without the filters that people made for them.

Updates change rows only. A publish brings the filters of the server in its `.tds`, or is refused.
"""

from collections.abc import Mapping
from typing import TypeVar

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.metadata.document import Metadata
from tableau_pipeline.metadata.row_security import row_filters
from tableau_pipeline.outcome import Accept, Code, Refusal
from tableau_pipeline.refresh.decide import Changed, Facts, Options, Plan, Publish, Refuse

_AnyPlan = TypeVar("_AnyPlan", bound=Plan | Changed)


def secured(plan: _AnyPlan, facts: Facts, options: Options) -> _AnyPlan | Publish | Refuse:
    """Return the plan, so that it keeps who may see which rows; a refusal if it cannot."""
    if isinstance(plan, Refuse):
        return plan
    if refusal := _gone(plan, facts, options):
        return Refuse((refusal,))
    filters = filters_in(facts.base.metadata)
    if not (filters and isinstance(plan, Publish)):
        return plan
    merge = facts.metadata
    brought = row_filters(merge.tds) if merge and merge.tds and not merge.problem else {}
    if lost := [name for name in filters if brought.get(name) != filters[name]]:
        return Refuse((_would_go(facts, lost, problem=merge.problem if merge else None),))
    return Publish(PublishMode.OVERWRITE, plan.reason, merged=True)


def filters_in(metadata: Metadata | None) -> Mapping[str, str]:
    """Return the filters of a data source as `row_filters` does; {} if its `.tds` was not read."""
    return row_filters(metadata.tds) if metadata and metadata.tds else {}


def _gone(plan: Plan | Changed, facts: Facts, options: Options) -> Refusal | None:
    """Return a refusal if filters are gone that the last refresh saw, or may be gone."""
    base, metadata = facts.base, facts.base.metadata
    before = base.checkpoint.filters if base.checkpoint else ()
    if not before or Accept.FILTER in options.accept:
        return None
    # Without the content of the `.tds`, it is as it was: only its digest was needed.
    if metadata and not metadata.tds:
        return None
    name, remedy = facts.declaration.name, "run once with accept: [filter]"
    if base.exists and metadata is None:
        if not isinstance(plan, Publish):
            return None
        problem = (
            f'"{name}" had {_listed(before)}, and whether a publish would keep that is not known: '
            "its metadata cannot be read. Nothing was sent"
        )
        remedy = f"Let this user download it; or, to publish its rows without that, {remedy}"
        return Refusal(problem, Code.FILTER_LOST, Accept.FILTER, remedy=remedy)
    present = filters_in(metadata)
    if not (gone := [each for each in before if each not in present]):
        return None
    where = "is no longer in it" if base.exists else "went with it when it was deleted"
    problem = f'"{name}" had {_listed(gone)}, and that {where}. Nothing was sent'
    remedy = f"Put it back; or, if people may see the rows without it, {remedy}"
    details = {"filters": gone}
    return Refusal(problem, Code.FILTER_GONE, Accept.FILTER, remedy=remedy, details=details)


def _would_go(facts: Facts, lost: list[str], *, problem: str | None) -> Refusal:
    why = f": {problem}" if problem else ", as a field that it uses goes or changes"
    return Refusal(
        f'"{facts.declaration.name}" must be published in full, and that would lose '
        f"{_listed(lost)}{why}. Nothing was sent",
        Code.FILTER_LOST,
        remedy="Leave the fields that it uses as they are; or change or remove it on the server "
        "first",
        details={"filters": lost},
    )


def _listed(filters: tuple[str, ...] | list[str]) -> str:
    return " and ".join(filters)

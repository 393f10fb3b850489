"""Row-level security: a refresh publishes rows only together with the filters that people made.

These filters decide which rows a user sees. An update changes only rows, and so keeps the filters.
A publish sends the server's filters back in its `.tds`, or is refused. With `guarded: true`, a data
source has no rows until a person has made a filter.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.metadata.contents import Metadata, read_metadata
from tableau_pipeline.outcome import Accept, Code, Refusal
from tableau_pipeline.refresh.decide import Changed, Facts, Options, Plan, Publish, Refuse
from tableau_pipeline.refresh.observe import Base

_AnyPlan = TypeVar("_AnyPlan", bound=Plan | Changed)


def secured(plan: _AnyPlan, facts: Facts) -> _AnyPlan | Publish | Refuse:
    """Return the plan, or a plan that keeps the row filters; a refusal if filters would be lost."""
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


def holds_rows_back(declaration: Declaration, base: Base) -> bool:
    """Whether no row may be published yet, because no person has made a filter of rows."""
    return declaration.guarded and not (base.filters_found or _may_have_rows(base))


def without_rows(base: Base, declaration: Declaration) -> Base:
    """Return the base, the observed state, with a warning that the data source has no rows yet."""
    warning = (
        f'"{declaration.name}" has no rows yet (guarded: true): the next refresh publishes them '
        "once somebody has made a data source filter, a user filter, or a field with a user "
        "function in it"
    )
    return replace(base, warnings=(*base.warnings, warning))


def unguarded(declaration: Declaration, base: Base, options: Options) -> Refusal | None:
    """Return a refusal if the declaration is `guarded`, and its rows would have no filter."""
    if not declaration.guarded or base.filters_found or not (options.to or _may_have_rows(base)):
        return None
    if Accept.FILTER in options.accept and not options.to:
        return None
    return Refusal(
        f'"{declaration.name}" is declared with guarded: true, and has no filter on the server '
        "that decides who sees which rows. Nothing was sent",
        Code.FILTER_MISSING,
        Accept.FILTER,
        remedy="Make one there; or declare it without guarded; or, if people may see all rows, "
        "run once with accept: [filter]",
    )


def _may_have_rows(base: Base) -> bool:
    tables = base.checkpoint.tables.values() if base.checkpoint else ()
    return base.exists and (not tables or any(table.content.rows for table in tables))


def _gone(plan: Plan | Changed, facts: Facts) -> Refusal | None:
    """Return a refusal if filters that the last refresh found are gone, or might be lost."""
    base, name, remedy = facts.base, facts.declaration.name, "run once with accept: [filter]"
    # If the server was not asked, `remote` is None, and we trust our records of the filters.
    if base.remote and base.metadata is None:
        if not (base.filters and isinstance(plan, Publish)):
            return None
        problem = (
            f'"{name}" had {_listed(base.filters)}, and it is not known whether a publish would '
            "keep that: its metadata cannot be read. Nothing was sent"
        )
        remedy = f"Let this user download it; or, to publish its rows without that, {remedy}"
        return Refusal(problem, Code.FILTER_LOST, Accept.FILTER, remedy=remedy)
    if not (gone := filters_gone(base)):
        return None
    where = "is no longer in it" if base.exists else "was deleted with it"
    problem = f'"{name}" had {_listed(gone)}, and that {where}. Nothing was sent'
    remedy = f"Put it back; or, if people may see the rows without it, {remedy}"
    details = {"filters": gone}
    return Refusal(problem, Code.FILTER_GONE, Accept.FILTER, remedy=remedy, details=details)


def filters_gone(base: Base) -> list[str]:
    """Return the filters that the last refresh found, and that are gone now."""
    present = base.filters_found if base.exists else ()
    return [each for each in base.filters if each not in present]


def check_filters_kept(base: Base, held: Metadata, *, name: str) -> None:
    """Check, after a publish, that the data source still has its former filters.

    Raises:
        RefreshError: a filter is missing.
    """
    if gone := [each for each in base.filters_found if each not in held.filters]:
        raise RefreshError(
            f'"{name}" was published, and the server did not keep {_listed(gone)}: people may see '
            "all rows now. Put it back, or restrict who may see the data source. Until then, the "
            "next runs are refused"
        )


def _would_go(facts: Facts, lost: Sequence[str]) -> Refusal:
    problem = facts.metadata.problem if facts.metadata else None
    why = f": {problem}" if problem else ", as a field that it uses goes or changes"
    tables = "Declare the tables that it was made for, or another name"
    instead = tables if problem else "Leave the fields that it uses as they are"
    return Refusal(
        f'"{facts.declaration.name}" must be published in full, and that would lose '
        f"{_listed(lost)}{why}. Nothing was sent",
        Code.FILTER_LOST,
        remedy=f"{instead}; or change or remove it on the server first",
        details={"filters": [*lost]},
    )


def _listed(filters: Sequence[str]) -> str:
    return " and ".join(filters)

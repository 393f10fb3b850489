"""Check a table of entitlements before it is published.

Entitlements say which user may see which rows. In Tableau, people make a filter that compares the
table's column of users with USERNAME(). So a mistake in the table would hide rows from some users,
or show them to the wrong users. The number of rows is checked elsewhere, by the table's guard: see
`Declaration.guard_of`.
"""

from collections.abc import Collection, Iterator

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import Entitlements
from tableau_pipeline.outcome import Code, Refusal
from tableau_pipeline.publishing.properties import has_any_user
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.decide import Publish, UpdateTables
from tableau_pipeline.refresh.planning import Planned


def entitled(
    planned: Planned, entitlements: Entitlements | None, site: TableauSite | None
) -> Planned:
    """Return a plan unchanged if its entitlements are valid; otherwise, return it as a refusal.

    Args:
        site: None to skip the check whether the site has any of the users.
    """
    if entitlements is None or not isinstance(planned.plan, Publish | UpdateTables):
        return planned
    content = planned.desired[entitlements.table]
    if not content.content.rows:
        return planned
    problem = next(_problems(planned, entitlements, content, site), None)
    return planned.refused(problem) if problem else planned


def _problems(
    planned: Planned, entitlements: Entitlements, content: TableContent, site: TableauSite | None
) -> Iterator[Refusal]:
    name, column = entitlements.table, entitlements.user
    types = {each.name: each.type for each in content.columns}
    if types.get(column) != "string":
        found = f"is {types[column]}" if column in types else "does not exist"
        listed = ", ".join(name for name, type_ in types.items() if type_ == "string") or "none"
        yield _refusal(
            entitlements,
            f"it {found}, and names of users are text",
            f'Name the column of table "{name}" that has the users. Its columns of text: {listed}',
        )
        return
    users = planned.builder.texts(name, content, column)
    if any(not (user or "").strip() for user in users):
        yield _refusal(
            entitlements,
            "in some rows, the user is NULL or blank",
            f'Correct the model "{content.model}"',
        )
        return
    if site and has_any_user(site, _names(users)) is False:
        yield _refusal(
            entitlements,
            f"the site has none of the {len(users):,} users, so no user would see any row",
            "Write the names as USERNAME() returns them, without the domain",
        )


def _names(users: Collection[str | None]) -> set[str]:
    """Return the names of users, without the domain if a name has one."""
    return {(user or "").rpartition("\\")[2] for user in users}


def _refusal(entitlements: Entitlements, problem: str, remedy: str) -> Refusal:
    return Refusal(
        f'Entitlements in column "{entitlements.user}" of table "{entitlements.table}": {problem}. '
        "Nothing was sent",
        Code.ENTITLEMENTS,
        table=entitlements.table,
        column=entitlements.user,
        remedy=remedy,
    )

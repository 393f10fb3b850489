from tableau_sandbox.identity import seeded_luid
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import Contents, Project

DEFAULT_PROJECT = "Default"


def projects(database: Database, site: str) -> list[Project]:
    """Return all projects of a site, oldest first."""
    return database.records(Project, "WHERE site = ? ORDER BY rowid", site)


def project(database: Database, site: str, luid: str) -> Project | None:
    """Return the project with this LUID."""
    return database.record(Project, "WHERE site = ? AND luid = ?", site, luid)


def contents(database: Database, site: str) -> dict[str, Contents]:
    """Return how much each project of a site contains, by its LUID; empty ones are left out."""
    children = "SELECT parent AS luid, count(*) AS number FROM project WHERE site = ? GROUP BY 1"
    sources = "SELECT project AS luid, count(*) AS number FROM datasource WHERE site = ? GROUP BY 1"
    numbers = [
        {row["luid"]: row["number"] for row in database.rows(sql, site)}
        for sql in (children, sources)
    ]
    return {
        luid: Contents(*(number.get(luid, 0) for number in numbers))
        for luid in {*numbers[0], *numbers[1]}
    }


def find_by_name(database: Database, site: str, *, parent: str | None, name: str) -> Project | None:
    """Return the project with this name, in any case of letters, under the same parent."""
    for candidate in projects(database, site):
        if candidate.parent == parent and candidate.name.casefold() == name.casefold():
            return candidate
    return None


def save_project(database: Database, project: Project) -> None:
    """Insert a project, or replace its earlier state."""
    database.save("project", vars(project))


def delete_project(database: Database, luid: str) -> None:
    """Delete a project with its content."""
    database.change("DELETE FROM project WHERE luid = ?", luid)


def default_project_luid(site: str) -> str:
    """Return the LUID of the default project of a site, which cannot be deleted."""
    return seeded_luid("project", site, DEFAULT_PROJECT)

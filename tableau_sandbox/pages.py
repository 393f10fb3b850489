"""The status pages: the content of the sandbox, and its latest jobs."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import defusedxml.ElementTree
from starlette.requests import Request
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from tableau_sandbox.access import RuleSet, Subject, access_to
from tableau_sandbox.http.middlewares import is_loopback
from tableau_sandbox.services import Services
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.jobs import latest_jobs
from tableau_sandbox.store.records import (
    Datasource,
    Group,
    Project,
    QualityWarning,
    Revision,
    Site,
    User,
)

_JOBS_SHOWN = 20
# Fields whose names contain this text count the rows of tables. The page omits them, because
# Tableau displays them under other names.
_INTERNAL = "__tableau_internal_object_id__"
# Published content must not run code or load anything.
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
_UNITS = ("bytes", "KB", "MB", "GB")


def overview(request: Request) -> Response:
    """Show all sites with their projects, data sources and latest jobs."""
    services: Services = request.app.state.services
    database = services.database
    sites = []
    for site in database.all(Site):
        sources = database.all(Datasource, site=site.luid)
        sites.append(
            {
                "site": site,
                "tree": list(_tree(database.all(Project, site=site.luid), sources)),
                "is_empty": not sources,
                "jobs": latest_jobs(database, site.luid, most=_JOBS_SHOWN),
            }
        )
    context = {"options": services.options, "sites": sites}
    return _TEMPLATES.TemplateResponse(request, "overview.html", context, headers=_HEADERS)


def _tree(
    found: list[Project], sources: list[Datasource], *, parent: str | None = None, depth: int = 0
) -> Iterator[tuple[int, Project, Datasource | None]]:
    """Yield the projects in `parent` with their depth, each followed by its content."""
    for project in sorted(found, key=lambda project: project.name.casefold()):
        if project.parent == parent:
            yield depth, project, None
            for source in sorted(sources, key=lambda source: source.name.casefold()):
                if source.project == project.luid:
                    yield depth + 1, project, source
            yield from _tree(found, sources, parent=project.luid, depth=depth + 1)


def datasource(request: Request) -> Response:
    """Show one data source: its fields, the first rows of its tables, and its permissions.

    Pages need no sign-in, so only clients on this machine see the rows.
    """
    services: Services = request.app.state.services
    luid = request.path_params["luid"]
    context: dict[str, object] = {"source": None}
    for site in services.database.all(Site):
        found = services.database.find(Datasource, site=site.luid, luid=luid)
        if found is not None:
            warnings = services.database.all(QualityWarning, datasource=luid)
            context = {
                "source": found,
                "facts": [
                    *_facts(site, found, services.database.all(Project, site=site.luid)),
                    *((f"Warning: {each.type}", each.message) for each in warnings),
                ],
                "fields": list(_fields(found)),
                "permissions": list(_permissions(services.database, found)),
                "revisions": services.database.all(Revision, datasource=luid),
                "shows_rows": request.client is not None and is_loopback(request.client.host),
            }
    status = 200 if context["source"] else 404
    return _TEMPLATES.TemplateResponse(
        request, "datasource.html", context, status_code=status, headers=_HEADERS
    )


def _fields(source: Datasource) -> Iterator[dict[str, str]]:
    """Yield the attributes of each field in the `.tds`, which may lack columns of the file."""
    tds = defusedxml.ElementTree.fromstring(source.tds)
    folders = {
        item.get("name"): folder.get("name", "")
        for folder in (*tds.iterfind("folder"), *tds.iterfind("folders-common/folder"))
        for item in folder.iterfind("folder-item")
    }
    for column in tds.iterfind("column"):
        if _INTERNAL in column.get("name", ""):
            continue
        calculation = column.find("calculation")
        runs = column.iterfind("desc/formatted-text/run")
        yield {
            "Field": column.get("name", "").strip("[]"),
            "Caption": column.get("caption", ""),
            "Role": column.get("role", ""),
            "Format": column.get("default-format", ""),
            "Folder": folders.get(column.get("name"), ""),
            "Formula": "" if calculation is None else calculation.get("formula", ""),
            "Description": "".join(run.text or "" for run in runs),
            "Hidden": "hidden" if column.get("hidden") == "true" else "",
        }


def _permissions(database: Database, source: Datasource) -> Iterator[tuple[str, str, str]]:
    """Yield grantee, mode and capabilities of the rules that count, without the owner's rights."""
    access = access_to(database, source.site)
    own = RuleSet(source.luid, Subject.DATASOURCE)
    names = {user.luid: user.name for user in database.all(User)}
    names |= {group.luid: group.name for group in database.all(Group, site=source.site)}
    found: dict[tuple[str, str], list[str]] = {}
    for rule in access.rules_of(access.governing(own, access.project_of(source))):
        found.setdefault((rule.grantee, rule.mode), []).append(rule.capability)
    for (grantee, mode), capabilities in found.items():
        yield names.get(grantee, grantee), mode, ", ".join(capabilities)


def _facts(site: Site, source: Datasource, projects: list[Project]) -> list[tuple[str, str]]:
    by_luid = {project.luid: project for project in projects}
    path, parent = [], by_luid.get(source.project)
    while parent:
        path.insert(0, parent.name)
        parent = by_luid.get(parent.parent or "")
    return [
        ("Site", site.name),
        ("Project", " / ".join(path)),
        ("Owner", source.owner_name),
        ("Connection", source.connection_class + (" (extract)" if source.has_extracts else "")),
        ("Size", _size(source.hyper_bytes)),
        ("Published", _moment(source.created_at)),
        ("Updated", _moment(source.updated_at)),
        ("Tags", ", ".join(source.tags)),
        ("Description", source.description),
        ("Certified", (source.certification_note or "yes") if source.is_certified else ""),
    ]


def _size(count: int) -> str:
    """Format a number of bytes; 1 MB is 10^6 bytes."""
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    # Avoid a line break between number and unit.
    return f"{amount:.1f}\N{NO-BREAK SPACE}{_UNITS[unit]}" if unit else f"{count} bytes"


def _moment(stamp: str) -> str:
    """Format a time of the API, always in UTC, for people."""
    return stamp.replace("T", " ").replace("Z", " UTC")


def _seconds_until(start: str | None, end: str | None) -> str:
    """Return a duration in whole seconds, the precision of the API's times."""
    if start is None or end is None:
        return ""
    return f"{(datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds():,.0f} s"


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


_TEMPLATES = Jinja2Templates(Path(__file__).with_name("templates"))
_TEMPLATES.env.filters |= {
    "from_json": json.loads,
    "moment": _moment,
    "rows": _rows,
    "seconds_until": _seconds_until,
    "size": _size,
}

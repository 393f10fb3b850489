"""The status page: the content of each site, and its latest jobs."""

import json
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import HTMLResponse

from tableau_sandbox.pages import formatting
from tableau_sandbox.pages.html import Html, element, link, page, row, rows_table, table
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts, datasources, jobs, projects
from tableau_sandbox.store.records import Datasource, Job, Project, Site

_JOBS_SHOWN = 20
_CONTENT_HEADINGS = ("Project / data source", "Tables", "Size", "Revision", "Owner", "Updated")
_JOB_HEADINGS = ("Job", "Kind", "Status", "Created", "Waited", "Took", "Notes")


def overview(request: Request) -> HTMLResponse:
    """Show all sites with their projects, data sources and latest jobs."""
    services: Services = request.app.state.services
    options = services.options
    about = (
        f"Tableau Server {options.product_version}, REST API {options.rest_version};"
        f" data in {options.data_dir}; times are in UTC"
    )
    parts = [element("p", about, kind="quiet")]
    for site in accounts.sites(services.database):
        parts += _site(services, site)
    return page("Tableau sandbox", parts)


def _site(services: Services, site: Site) -> Iterator[Html]:
    found = projects.projects(services.database, site.luid)
    sources = datasources.datasources(services.database, site.luid)
    yield element("h2", f"Site {site.name}")
    yield rows_table(_CONTENT_HEADINGS, _tree(found, sources))
    if not sources:
        yield element("p", "Nothing is published here yet.", kind="quiet")
    latest = jobs.jobs(services.database, site.luid, most=_JOBS_SHOWN)
    if latest:
        yield element("h3", "Latest jobs")
        yield table(_JOB_HEADINGS, [_job(job) for job in latest])


def _tree(
    found: list[Project], sources: list[Datasource], *, parent: str | None = None, depth: int = 0
) -> Iterator[Html]:
    """Yield the projects in `parent`, each followed by its content."""
    for project in sorted(found, key=lambda project: project.name.casefold()):
        if project.parent != parent:
            continue
        empty = [None] * (len(_CONTENT_HEADINGS) - 1)
        yield row([project.name, *empty], kind="project", depth=depth)
        for source in sorted(sources, key=lambda source: source.name.casefold()):
            if source.project == project.luid:
                yield row(_datasource(source), depth=depth + 1)
        yield from _tree(found, sources, parent=project.luid, depth=depth + 1)


def _datasource(source: Datasource) -> list[str | int | Html]:
    tables = ", ".join(
        f"{table['name']} ({formatting.rows(table['row_count'])})"
        for table in json.loads(source.tables)
    )
    return [
        link(f"/datasources/{source.luid}", source.name),
        tables,
        formatting.size(source.hyper_bytes),
        source.revision,
        source.owner_name,
        element("time", formatting.moment(source.updated_at)),
    ]


def _job(job: Job) -> list[str | Html | None]:
    return [
        job.title,
        job.kind,
        element("span", job.status, kind=job.status),
        element("time", formatting.moment(job.created_at)),
        formatting.seconds_between(job.created_at, job.started_at),
        formatting.seconds_between(job.started_at, job.completed_at),
        job.notes,
    ]

"""Pages for people: what the sandbox holds."""

import json
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse

from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store import accounts, datasources, jobs, projects
from tableau_pipeline.sandbox.store.records import Datasource, Site

_JOBS_SHOWN = 20
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto }}
table {{ border-collapse: collapse; margin: .5rem 0 1.5rem; display: block; overflow-x: auto }}
th, td {{ border-bottom: 1px solid #ddd; padding: .25rem .75rem; text-align: left }}
th {{ color: #555; font-weight: 600 }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums }}
.null {{ color: #aaa }}
</style></head><body><h1>{title}</h1>{body}</body></html>"""


def overview(request: Request) -> HTMLResponse:
    """All sites with their projects, data sources and latest jobs."""
    services: Services = request.app.state.services
    sections = [_site(services, site) for site in accounts.sites(services.database)]
    return _page("Tableau sandbox", "".join(sections))


def datasource(request: Request) -> HTMLResponse:
    """One data source: its tables, their columns and first rows."""
    services: Services = request.app.state.services
    luid = request.path_params["luid"]
    for site in accounts.sites(services.database):
        found = datasources.datasource(services.database, site.luid, luid)
        if found is not None:
            facts = f"<p>Project {escape(found.project_name)}, updated {found.updated_at}.</p>"
            tables = "".join(_table_section(table) for table in json.loads(found.tables))
            return _page(found.name, f'{facts}{tables}<p><a href="/">All data sources</a></p>')
    return _page("There is no such data source", "", status=404)


def _site(services: Services, site: Site) -> str:
    names = {project.luid: project for project in projects.projects(services.database, site.luid)}

    def path(luid: str) -> str:
        project = names[luid]
        return f"{path(project.parent)}/{project.name}" if project.parent else project.name

    found = datasources.datasources(services.database, site.luid)
    sources = [
        [
            f'<a href="/datasources/{source.luid}">{escape(source.name)}</a>',
            escape(path(source.project)),
            escape(_tables(source)),
            source.hyper_bytes,
            source.updated_at,
        ]
        for source in found
    ]
    latest = [
        [escape(job.title), job.kind, job.status, job.created_at, escape(job.notes or "")]
        for job in jobs.jobs(services.database, site.luid)[:_JOBS_SHOWN]
    ]
    listed = ", ".join(escape(path(luid)) for luid in names)
    return (
        f"<h2>Site {escape(site.name)}</h2><p>Projects: {listed}</p>"
        + _table(["Data source", "Project", "Tables", "Bytes", "Updated"], sources)
        + _table(["Job", "Kind", "Status", "Created", "Notes"], latest)
    )


def _tables(source: Datasource) -> str:
    return ", ".join(
        f"{table['name']} ({table['row_count']:,} rows)" for table in json.loads(source.tables)
    )


def _table_section(table: dict) -> str:
    title = escape(f"{table['schema']}.{table['name']}")
    columns = [
        [escape(column["name"]), escape(column["type"]), "" if column["nullable"] else "not null"]
        for column in table["columns"]
    ]
    rows = [
        ['<span class="null">null</span>' if value is None else escape(value) for value in row]
        for row in table["sample"]
    ]
    return (
        f"<h2>{title}: {table['row_count']:,} rows</h2>"
        + _table(["Column", "Type", ""], columns)
        + _table([escape(column["name"]) for column in table["columns"]], rows)
    )


def _table(headings: list[str], rows: list[list]) -> str:
    """A table of cells that are HTML already; whole numbers are set to the right."""
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" if rows else ""


def _cell(value: str | int) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{value}</td>"


def _page(title: str, body: str, *, status: int = 200) -> HTMLResponse:
    return HTMLResponse(_PAGE.format(title=escape(title), body=body), status)

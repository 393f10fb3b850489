"""The page of one data source."""

import json
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import HTMLResponse

from tableau_sandbox.loopback import is_loopback
from tableau_sandbox.pages import formatting
from tableau_sandbox.pages.html import Cell, Html, element, link, page, table
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts, datasources
from tableau_sandbox.store.records import Datasource, Revision, Site

_BACK = element("p", link("/", "All data sources"))
_NULL = element("span", "NULL", kind="null")
_NO_ROWS = element("p", "Rows are shown on the sandbox's own machine only.", kind="quiet")


def datasource(request: Request) -> HTMLResponse:
    """Show one data source: its tables with their columns and first rows, and its revisions.

    Pages need no sign-in, so the rows are for clients on this machine only.
    """
    services: Services = request.app.state.services
    luid = request.path_params["luid"]
    shows_rows = request.client is not None and is_loopback(request.client.host)
    for site in accounts.sites(services.database):
        found = datasources.datasource(services.database, site.luid, luid)
        if found is not None:
            parts = [_BACK, _facts(site, found)]
            for stored in json.loads(found.tables):
                parts += _table(stored)
                parts += _first_rows(stored) if shows_rows else [_NO_ROWS]
            kept = datasources.revisions(services.database, luid)
            return page(found.name, [*parts, *_revisions(kept, current=found.revision)])
    return page("There is no such data source", [_BACK], status=404)


def _facts(site: Site, source: Datasource) -> Html:
    rows: list[tuple[str, Cell]] = [
        ("Site", site.name),
        ("Project", source.project_name),
        ("Owner", source.owner_name),
        ("Connection", source.connection_class + (" (extract)" if source.has_extracts else "")),
        ("Size", formatting.size(source.hyper_bytes)),
        ("Published", element("time", formatting.moment(source.created_at))),
        ("Updated", element("time", formatting.moment(source.updated_at))),
        ("Tags", ", ".join(source.tags) or None),
        ("Description", source.description or None),
        ("LUID", element("code", source.luid)),
    ]
    return table((), [row for row in rows if row[1] is not None])


def _table(stored: dict) -> Iterator[Html]:
    name, count = f"{stored['schema']}.{stored['name']}", formatting.rows(stored["row_count"])
    yield element("h2", f"{name}: {count}")
    columns = stored["columns"]
    nullable = {True: "", False: "not null"}
    yield table(
        ("Column", "Type", ""),
        [(column["name"], column["type"], nullable[column["nullable"]]) for column in columns],
    )


def _first_rows(stored: dict) -> Iterator[Html]:
    if stored["sample"]:
        yield element("h3", "First rows")
        yield table(
            [column["name"] for column in stored["columns"]],
            [[_NULL if value is None else value for value in row] for row in stored["sample"]],
        )


def _revisions(kept: list[Revision], *, current: int) -> Iterator[Html]:
    yield element("h2", "Revisions")
    yield table(
        ("Revision", "Published", "By", "Size"),
        [
            (
                f"{revision.number} (current)" if revision.number == current else revision.number,
                element("time", formatting.moment(revision.published_at)),
                revision.publisher_name,
                formatting.size(revision.hyper_bytes),
            )
            for revision in reversed(kept)
        ],
    )

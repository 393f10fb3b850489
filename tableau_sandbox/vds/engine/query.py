"""Compute queries of the data of a data source."""

from collections.abc import Sequence

from tableau_sandbox.faults import HideRows, QueryFault, StaleRows
from tableau_sandbox.services import Services
from tableau_sandbox.store.datasources import datasource as find
from tableau_sandbox.store.records import Datasource
from tableau_sandbox.vds.engine.names import Names
from tableau_sandbox.vds.engine.run import FileGoneError, Row, run
from tableau_sandbox.vds.engine.statement import statement
from tableau_sandbox.vds.errors import VdsError
from tableau_sandbox.vds.model_reader import read_model
from tableau_sandbox.vds.requests import Query, Request
from tableau_sandbox.vds.rules import check_query


def compute(
    services: Services, source: Datasource, request: Request, faults: Sequence[QueryFault]
) -> list[Row]:
    """Return the rows of a query, each in the order of its fields.

    Raises:
        VdsError: the query is refused.
    """
    for fault in faults:
        if isinstance(fault, StaleRows):
            source = services.earlier(fault, source)
    hidden = sum(fault.rows for fault in faults if isinstance(fault, HideRows))
    while True:
        try:
            return _computed(services, source, request, hidden_rows=hidden)
        except FileGoneError:
            before, source = source, _current(services, source)
            # Without another file, there is nothing to try again.
            if source.hyper_file == before.hyper_file:
                raise


def query_of(request: Request) -> Query:
    """Return the query of a request that has one."""
    if request.query is None:
        raise ValueError("the request has no query")
    return request.query


def _computed(
    services: Services, source: Datasource, request: Request, *, hidden_rows: int
) -> list[Row]:
    options, schema, query = services.options, services.options.vds_schema, query_of(request)
    names = Names(read_model(source), by_name=request.options.captions_are_names)
    check_query(request, types=names.types(), tables=names.tables(), schema=schema)
    prepared = statement(
        query,
        request.options,
        names,
        schema=schema,
        hidden_rows=hidden_rows,
        always_one=options.vds_empty == "zero",
    )
    rows = run(prepared, query, services.files.content / source.hyper_file)
    if not rows and prepared.is_single and options.vds_empty == "error":
        raise VdsError("500810", "The response has an empty table.")
    return rows


def _current(services: Services, source: Datasource) -> Datasource:
    current = find(services.database, source.site, source.luid)
    if current is None:
        raise VdsError("404937", "Datasource not found.")
    return current

"""Parse the bodies of requests."""

from tableau_sandbox.vds.errors import VdsError, malformed, not_emulated
from tableau_sandbox.vds.grammar.filters import filter_of
from tableau_sandbox.vds.grammar.json_values import (
    Reader,
    fields_of,
    many,
    parse_json,
    scalar,
    text,
)
from tableau_sandbox.vds.grammar.options import options_of
from tableau_sandbox.vds.grammar.query_fields import query_field_of
from tableau_sandbox.vds.requests import (
    Connection,
    Options,
    Parameter,
    Query,
    Request,
    Source,
)
from tableau_sandbox.vds.schema import (
    Endpoint,
    Part,
    Schema,
    knows_endpoint,
    knows_part,
)

_LUID, _WORKBOOK_SOURCE = "datasourceLuid", "workbookDatasourceId"


def parse_request(body: bytes, endpoint: Endpoint, schema: Schema) -> Request:
    """Parse the body of a request as a version of the service does.

    Raises:
        VdsError: 404950, the version has no such endpoint; 400000, the body is not JSON; 400802, it
            is no request; 400803, a field has a function and a calculation; 501000, it asks for a
            data source of a workbook.
    """
    check_endpoint(endpoint, schema)
    known = ["datasource"]
    if endpoint is not Endpoint.USER_HAS_QUERY_PERMISSIONS:
        known.append("options")
    is_query = endpoint is Endpoint.QUERY_DATASOURCE
    if is_query:
        known.append("query")
    fields = fields_of(parse_json(body), "request", known=known)
    return Request(
        source=fields.required("datasource", _source_of(schema)),
        options=fields.optional("options", options_of(schema, endpoint), Options()),
        query=fields.required("query", _query_of(schema)) if is_query else None,
    )


def check_endpoint(endpoint: Endpoint, schema: Schema) -> None:
    """Refuse requests to endpoints that a version lacks.

    Raises:
        VdsError: 404950.
    """
    if not knows_endpoint(schema, endpoint):
        raise VdsError("404950", f"No endpoint POST /vizql-data-service/v1/{endpoint}.")


def _source_of(schema: Schema) -> Reader[Source]:
    knows_workbooks = knows_part(schema, Part.WORKBOOK_DATASOURCE)
    known = (_LUID, "connections", *((_WORKBOOK_SOURCE,) if knows_workbooks else ()))

    def read(value: object, place: str) -> Source:
        fields = fields_of(value, place, known=known)
        connections = fields.optional("connections", many(_connection), ())
        if _WORKBOOK_SOURCE not in fields:
            return Source(fields.required(_LUID, text), connections)
        if _LUID in fields:
            raise malformed(f"{place} has both '{_LUID}' and '{_WORKBOOK_SOURCE}'.")
        fields.required(_WORKBOOK_SOURCE, text)
        raise not_emulated("Data sources of workbooks")

    return read


def _connection(value: object, place: str) -> Connection:
    known = ("connectionLuid", "connectionUsername", "connectionPassword")
    fields = fields_of(value, place, known=known)
    return Connection(
        luid=fields.maybe("connectionLuid", text),
        username=fields.required("connectionUsername", text),
        password=fields.required("connectionPassword", text),
    )


def _query_of(schema: Schema) -> Reader[Query]:
    def read(value: object, place: str) -> Query:
        fields = fields_of(value, place, known=("fields", "filters", "parameters"))
        return Query(
            fields=fields.required("fields", many(query_field_of(schema))),
            filters=fields.optional("filters", many(filter_of(schema)), ()),
            parameters=fields.optional("parameters", many(_parameter), ()),
        )

    return read


def _parameter(value: object, place: str) -> Parameter:
    fields = fields_of(value, place, known=("parameterCaption", "value"))
    return Parameter(fields.required("parameterCaption", text), fields.required("value", scalar))

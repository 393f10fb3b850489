"""What each version of the service understands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Schema(StrEnum):
    """A version of the service; later ones are greater."""

    V20251 = "20251"
    V20252 = "20252"
    V20253 = "20253"
    V20261 = "20261"
    V20262 = "20262"


class Endpoint(StrEnum):
    """An endpoint that takes a request, by the end of its path."""

    READ_METADATA = "read-metadata"
    QUERY_DATASOURCE = "query-datasource"
    GET_DATASOURCE_MODEL = "get-datasource-model"
    LIST_SUPPORTED_FUNCTIONS = "list-supported-functions"
    USER_HAS_QUERY_PERMISSIONS = "user-has-query-permissions"


class Part(StrEnum):
    """A part of requests that not all versions know."""

    BIN_FIELD = "fields with a 'binSize'"
    TABLE_CALCULATION = "fields with a 'tableCalculation'"
    NESTED_TABLE_CALCULATION = "nested table calculations"
    TABLE_COUNT = "COUNT of a table"
    CONDITION_FILTER = "CONDITION filters"
    COMPUTED_FILTER_FIELD = "SET, MATCH and DATE filters on a function or a calculation"
    WORKBOOK_DATASOURCE = "data sources of workbooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """What a version brought.

    Attributes:
        endpoints: its new endpoints.
        options: new options of all endpoints that take options.
        query_options: new options of queries only.
        parts: new parts of requests.
    """

    endpoints: tuple[Endpoint, ...] = ()
    options: tuple[str, ...] = ()
    query_options: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


ADDITIONS: Mapping[Schema, Additions] = {
    Schema.V20251: Additions(
        endpoints=(Endpoint.READ_METADATA, Endpoint.QUERY_DATASOURCE),
        options=("debug",),
        query_options=("returnFormat", "disaggregate"),
    ),
    Schema.V20252: Additions(),
    Schema.V20253: Additions(
        endpoints=(Endpoint.GET_DATASOURCE_MODEL,),
        options=("bypassMetadataCache", "interpretFieldCaptionsAsFieldNames"),
        parts=(Part.BIN_FIELD, Part.TABLE_CALCULATION),
    ),
    Schema.V20261: Additions(
        endpoints=(Endpoint.LIST_SUPPORTED_FUNCTIONS,),
        # These two change the answers of read-metadata only, but the OpenAPI lets all take them.
        options=("includeHiddenFields", "includeGroupFormulas"),
        query_options=("rowLimit", "returnServerSentEvents"),
        parts=(
            Part.NESTED_TABLE_CALCULATION,
            Part.TABLE_COUNT,
            Part.CONDITION_FILTER,
            Part.COMPUTED_FILTER_FIELD,
        ),
    ),
    Schema.V20262: Additions(
        endpoints=(Endpoint.USER_HAS_QUERY_PERMISSIONS,),
        options=("withNewSession",),
        parts=(Part.WORKBOOK_DATASOURCE,),
    ),
}


def knows_endpoint(schema: Schema, endpoint: Endpoint) -> bool:
    """Return whether a version has an endpoint."""
    return any(endpoint in additions.endpoints for additions in _until(schema))


def knows_part(schema: Schema, part: Part) -> bool:
    """Return whether a version understands a part of requests."""
    return any(part in additions.parts for additions in _until(schema))


def known_options(schema: Schema, endpoint: Endpoint) -> tuple[str, ...]:
    """Return the keys that an endpoint's `options` may have in a version."""
    is_query = endpoint is Endpoint.QUERY_DATASOURCE
    return tuple(
        option
        for additions in _until(schema)
        for option in additions.options + (additions.query_options if is_query else ())
    )


def _until(schema: Schema) -> Iterator[Additions]:
    return (additions for version, additions in ADDITIONS.items() if version <= schema)

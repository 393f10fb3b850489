"""Requests as plain values."""

from dataclasses import dataclass, field
from enum import StrEnum

from tableau_sandbox.vds.filters import Filter, Value
from tableau_sandbox.vds.query_fields import QueryField


class ReturnFormat(StrEnum):
    """How the rows of an answer are written."""

    OBJECTS = "OBJECTS"
    ARRAYS = "ARRAYS"


@dataclass(frozen=True, slots=True)
class Connection:
    """The credentials of a connection; None is the only one."""

    luid: str | None
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Source:
    """The data source that is asked, and credentials that it does not embed."""

    luid: str
    connections: tuple[Connection, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a request is answered; the last four belong to queries."""

    debug: bool = False
    bypass_metadata_cache: bool = False
    captions_are_names: bool = False
    include_hidden_fields: bool = False
    include_group_formulas: bool = False
    with_new_session: bool = False
    disaggregate: bool = False
    return_format: ReturnFormat = ReturnFormat.OBJECTS
    row_limit: int | None = None
    server_sent_events: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that replaces a parameter's own."""

    caption: str
    value: Value


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of a data source."""

    fields: tuple[QueryField, ...]
    filters: tuple[Filter, ...] = ()
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A request; only requests of query-datasource have a query."""

    source: Source
    options: Options
    query: Query | None = None

"""Parse requests to VizQL Data Service, by the grammar of Tableau's OpenAPI document.

The grammar includes features that the sandbox does not emulate. So a refusal can name the missing
emulation as its reason, and need not call the request malformed.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from tableau_sandbox.errors import RestError, refusal
from tableau_sandbox.strict_json import JsonError, read_json

# The version of the service that introduced an option. Earlier versions refuse the option.
_SINCE: Mapping[str, str] = {
    "bypass_metadata_cache": "20253",
    "interpret_field_captions_as_field_names": "20253",
    "include_hidden_fields": "20261",
    "include_group_formulas": "20261",
    "row_limit": "20261",
    "return_server_sent_events": "20261",
    "with_new_session": "20262",
}
_FUNCTION = (
    "SUM|AVG|MEDIAN|COUNT|COUNTD|MIN|MAX|STDEV|VAR|COLLECT|AGG|NONE|UNSPECIFIED"
    "|YEAR|QUARTER|MONTH|WEEK|DAY|TRUNC_(YEAR|QUARTER|MONTH|WEEK|DAY)"
)


def _refuse(_: Any) -> Any:
    # The type of this error is the code of the refusal.
    raise PydanticCustomError("501000", "The sandbox does not emulate this")


def _refuse_if_used(value: Any) -> Any:
    return _refuse(value) if value else value


_Gap, _GapIfUsed = AfterValidator(_refuse), AfterValidator(_refuse_if_used)
_Positive = Annotated[int, Field(ge=1, lt=1 << 31)]
_Objects = list[dict[str, Any]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class Connection(_Strict):
    """Credentials for a connection whose credentials the data source does not embed."""

    connection_luid: str = ""
    connection_username: str
    connection_password: str = Field(repr=False)


class Source(_Strict):
    """The data source of a request."""

    datasource_luid: str
    connections: list[Connection] = []


class Options(_Strict):
    """Options for the answer to any request."""

    debug: bool = False
    bypass_metadata_cache: bool = False
    interpret_field_captions_as_field_names: bool = False
    include_hidden_fields: bool = False
    include_group_formulas: bool = False
    with_new_session: bool = False


class QueryOptions(Options):
    """Options for the answer to a query."""

    return_format: Literal["OBJECTS", "ARRAYS"] = "OBJECTS"
    # No limit has an effect, because a result of aggregates has at most one row.
    row_limit: _Positive = 1
    disaggregate: Annotated[bool, _GapIfUsed] = False
    return_server_sent_events: Annotated[bool, _GapIfUsed] = False


class QueryField(_Strict):
    """A calculation with a caption of its own; without a formula, a field of the data source."""

    field_caption: str
    field_alias: str = Field(default="", min_length=1)
    calculation: str = ""
    function: Annotated[str, Field(pattern=f"^({_FUNCTION})$"), _Gap] = ""
    bin_size: Annotated[int | float, Field(ge=1), _Gap] = 1
    table_calculation: Annotated[dict[str, Any], _Gap] = {}
    nested_table_calculations: Annotated[_Objects, _Gap] = []
    max_decimal_places: Annotated[int, _Gap] = 0
    sort_direction: Annotated[Literal["ASC", "DESC"], _Gap] = "ASC"
    sort_priority: Annotated[_Positive, _Gap] = 1

    @model_validator(mode="before")
    @classmethod
    def _check_one_computation(cls, value: Any) -> Any:
        if isinstance(value, dict) and {"function", "calculation"} <= value.keys():
            raise PydanticCustomError("400803", "The field has both a function and a calculation")
        return value

    @property
    def is_calculation(self) -> bool:
        """Whether the field has a formula, even an empty formula."""
        return "calculation" in self.model_fields_set

    @property
    def key(self) -> str:
        """The field's key in an answer of objects."""
        return self.field_alias or self.field_caption


class Query(_Strict):
    """The fields, filters and parameters of a query."""

    fields: list[QueryField]
    filters: Annotated[_Objects, _GapIfUsed] = []
    parameters: Annotated[_Objects, _GapIfUsed] = []


class MetadataRequest(_Strict):
    """A request for the endpoint read-metadata."""

    datasource: Source
    options: Options = Options()


class QueryRequest(_Strict):
    """A request for the endpoint query-datasource."""

    datasource: Source
    options: QueryOptions = QueryOptions()
    query: Query


Request = MetadataRequest | QueryRequest
R = TypeVar("R", MetadataRequest, QueryRequest)


def parse_request(body: bytes, kind: type[R], schema: str) -> R:
    """Parse the body of a request as the given version of the service does.

    Raises:
        RestError: 400000, the body is not JSON; 400802, the body does not fit the grammar; 400803,
            a field has a function and a calculation; 501000, the sandbox does not emulate a feature
            that the request uses.
    """
    try:
        request = kind.model_validate(read_json(body))
    except JsonError as error:
        raise refusal("400000", f"Unable to parse the request body: {error}.") from error
    except ValidationError as error:
        raise min(_refusals(error), key=lambda refusal: refusal.code) from error
    for name in sorted(request.options.model_fields_set):
        if schema < _SINCE.get(name, schema):
            raise refusal(
                "400802", f"request.options.{to_camel(name)}: Extra inputs are not permitted."
            )
    return request


def _refusals(error: ValidationError) -> list[RestError]:
    """Return a refusal for each error. A client error has a smaller code than a missing feature."""
    found = []
    for each in error.errors(include_url=False, include_context=False):
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in each["loc"])
        message = f"request{''.join(steps)}: {each['msg']}."
        known = each["type"].isdigit()
        found.append(refusal(each["type"] if known else "400802", message))
    return found

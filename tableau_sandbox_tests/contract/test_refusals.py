"""What is refused, and with which code, where a request in one line shows it."""

from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import LIVE_MESSAGES, NOBODY, REFERENCE, TSC, fact
from tableau_sandbox_tests.contract.workspace import Workspace

_PROJECTS = "GET sites/{site}/projects"
_DATASOURCES = "GET sites/{site}/datasources"
_ONE = "sites/{site}/datasources/{datasource}"


@fact(
    _PROJECTS,
    REFERENCE,
    page_beyond_the_last="A page beyond the last: GET projects?pageNumber=9999 -> 400006",
    page_number_below_one="The page number 0: GET projects?pageNumber=0 -> 400006",
    wrong_method="A method that a path does not have: PATCH projects -> 405000",
)
@fact(
    _DATASOURCES,
    REFERENCE,
    page_size_below_one="The page size 0: GET datasources?pageSize=0 -> 400007",
    page_size_in_words="A page size that is no number: GET datasources?pageSize=many -> 400007",
    page_size_above_the_maximum="A page size above 1000: GET datasources?pageSize=1001 -> 403014",
    unknown_site_in_a_path="A path of no site: GET /sites/{nothing}/datasources -> 404000",
)
@fact(
    _DATASOURCES,
    LIVE_MESSAGES,
    unknown_filter_field="A filter by what is unknown: GET datasources?filter=no:eq:x -> 400065",
    datasources_have_no_filter_by_project_id="A filter of data sources by the LUID of a project: "
    "GET datasources?filter=projectId:eq:{nothing} -> 400065",
)
@fact(
    _DATASOURCES,
    NOBODY,
    unknown_filter_operator="A filter with an unknown operator: "
    "GET datasources?filter=name:resembles:x -> 400065",
    filter_by_no_time="A filter that compares a time with something else: "
    "GET datasources?filter=updatedAt:gt:yesterday -> 400065",
)
@fact(_DATASOURCES, TSC, unknown_path="A path that does not exist: GET noSuchThings -> 404003")
@fact(
    "GET sites/{site}/users/{user}",
    REFERENCE,
    unknown_user="A user who does not exist: GET users/{nothing} -> 404002",
)
@fact(
    f"GET {_ONE}",
    REFERENCE,
    unknown_datasource="An unknown data source: GET datasources/{nothing} -> 404004",
)
@fact(
    f"GET {_ONE}/content",
    REFERENCE,
    content_of_an_unknown_datasource="The content of an unknown data source: "
    "GET datasources/{nothing}/content -> 404004",
)
@fact(
    f"GET {_ONE}/connections",
    REFERENCE,
    connections_of_an_unknown_datasource="A list of connections of an unknown data source: "
    "GET datasources/{nothing}/connections -> 404011",
)
@fact(
    f"GET {_ONE}/permissions",
    REFERENCE,
    permissions_of_an_unknown_datasource="A list of permissions of an unknown data source: "
    "GET datasources/{nothing}/permissions -> 404004",
)
@fact(
    "GET sites/{site}/jobs/{job}",
    REFERENCE,
    unknown_job="A job that does not exist: GET jobs/{nothing} -> 404018",
)
def test_refused_of_a_site(session: Session, *, what: str, asked: str, codes: str):
    """{what} is refused with {codes}."""
    session.send(asked).is_refused(codes)


@fact(
    f"PUT {_ONE}",
    REFERENCE,
    moved_to_an_unknown_project="A move to an unknown project: "
    "PUT {shared} <datasource><project id='{nothing}'/></datasource> -> 404005",
    given_to_an_unknown_user="An owner who does not exist: "
    "PUT {shared} <datasource><owner id='{nothing}'/></datasource> -> 404002",
)
@fact(
    f"DELETE {_ONE}/tags/{{label}}",
    REFERENCE,
    unknown_tag="A tag that a data source lacks: DELETE {shared}/tags/nosuchtag -> 404007",
)
@fact(
    f"POST {_ONE}/refresh",
    LIVE_MESSAGES,
    refresh_of_hyper_data="A refresh of a published .hyper file, which has no extract: "
    "POST {shared}/refresh <extractRefresh/> -> 409090",
)
@fact(
    f"GET {_ONE}/revisions/{{revision}}/content",
    REFERENCE,
    unknown_revision="A revision that there is not: GET {shared}/revisions/999/content -> 404024",
)
@fact(
    f"PUT {_ONE}/permissions",
    REFERENCE,
    unknown_capability="A capability that does not exist: PUT {shared}/permissions <permissions>"
    "<granteeCapabilities><user id='{user}'/><capabilities><capability name='NoSuchCapability'"
    " mode='Allow'/></capabilities></granteeCapabilities></permissions> -> 400000 or 400009",
    permissions_of_something_else="A request for the permissions of a workbook: "
    "PUT {shared}/permissions <permissions><workbook id='{nothing}'/></permissions> -> 400000",
    permissions_of_another_datasource="A request for the permissions of another data source: PUT "
    "{shared}/permissions <permissions><datasource id='{nothing}'/></permissions>"
    " -> 400000 or 404009",
)
@fact(
    f"DELETE {_ONE}/permissions/{{grantees}}/{{grantee}}/{{capability}}/{{mode}}",
    REFERENCE,
    revoked_without_a_grant="A revocation of what was not granted: "
    "DELETE {shared}/permissions/users/{user}/VizqlDataApiAccess/Allow -> 404013",
)
def test_refused_of_a_datasource(workspace: Workspace, *, what: str, asked: str, codes: str):
    """{what} is refused with {codes}."""
    workspace.send(asked).is_refused(codes)

"""Users, groups and tokens; permissions, tags and warnings, modelled on public recordings."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing import access_checks, properties
from tableau_pipeline_tests.publishing.hostile import Call
from tableau_pipeline_tests.publishing.recorded.support import (
    ITEM,
    LUID,
    Server,
    error,
    page,
    raw,
    xml,
)

GROUPS, USERS = "sites/[^/]+/groups", "sites/[^/]+/users"
PERMISSIONS, TAGS = f"{ITEM}/permissions", f"{ITEM}/tags"
WARNINGS = f"sites/[^/]+/dataQualityWarnings/datasource/{LUID}"


def group(luid: str, name: str, domain: str | None) -> str:
    """A group, as in REST reference, Query Groups, and TSC, group_get.xml."""
    inside = f'<domain name="{domain}"/>' if domain else ""
    more = "<import domainName='x' siteRole='Viewer'/>" if domain == "old" else ""
    return f'<group id="{luid}" name="{name}" minimumSiteRole="Viewer">{inside}{more}</group>'


def user(luid: str, name: str, domain: str | None) -> str:
    """A user, as in TSC, user_get.xml and user_get_all_fields.xml. Only the latter has a domain."""
    inside = f'<domain name="{domain}"/>' if domain else ""
    return (
        f'<user id="{luid}" name="{name}" authSetting="TableauIDWithMFA" siteRole="Creator"'
        f' lastLogin="2025-02-04T06:39:20Z" externalAuthUserId="" locale="">{inside}</user>'
    )


KINDS: Any = pytest.mark.parametrize(
    ("kind", "path", "item"), [("group", GROUPS, group), ("user", USERS, user)]
)


@KINDS
def test_one_name_in_several_domains(server: Server, kind: str, path: str, item: Any):
    """Prevents: a permission, or the data source itself, goes to a namesake in another domain."""
    found = [
        item("1", "Ann", "local"),
        item("2", "ann", "example.com"),
        item("3", "Anna", "example.com"),
        item("4", "Bob", None),
        item("5", "Eve", "old"),
    ]
    with server.saying("GET", path, page(f"{kind}s", *found)) as asked:
        for name, luid in {
            "local\\Ann": "1",
            "LOCAL\\ann": "1",
            "example.com\\Ann": "2",
            "Anna": "3",
            "example.com\\Anna": "3",
            "bob": "4",
            "Eve": "5",
            "elsewhere\\Ann": None,
            "elsewhere\\": None,
            "Nobody": None,
        }.items():
            assert properties.find_named(server.site, kind, name) == luid
        assert all("fields=_all_" in each for each in asked)
        with pytest.raises(RefusedError) as caught:
            properties.find_named(server.site, kind, "Ann")
    for part in (f'the {kind} "Ann"', "example.com, local", r"example.com\Ann", "Nothing was sent"):
        assert part in str(caught.value)


@KINDS
def test_backslash_in_a_name(server: Server, kind: str, path: str, item: Any):
    """Prevents: the pipeline does not find a user or group whose name contains a backslash."""
    with server.saying("GET", path, page(f"{kind}s", item("1", "a\\b", "local"))):
        assert properties.find_named(server.site, kind, "A\\B") == "1"


@KINDS
def test_name_that_is_listed_twice(server: Server, kind: str, path: str, item: Any):
    """Prevents: a user or group that occurs twice in a list counts as two."""
    twice = [item("1", "Ann", "local")] * 2
    with server.saying("GET", path, page(f"{kind}s", *twice)):
        assert properties.find_named(server.site, kind, "Ann") == "1"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (xml(user(LUID, "ann", None)), ("ann", "Creator")),
        (xml(f'<user id="{LUID}" name="ann" siteRole="ServerAdministrator"><x/></user>'),
         ("ann", "ServerAdministrator")),
        (xml(f'<user id="{LUID}" name="ann"/>'), ("ann", "")),
        (error(403, "403004"), (LUID, "")),
        (error(404, "404002"), (LUID, "")),
        # TSC, issue 1320: a connected app that may not ask for users.
        (error(401, "401002"), (LUID, "")),
        (error(401, "401000"), (LUID, "")),
    ],
)  # fmt: skip
def test_user(server: Server, answer: Any, expected: tuple[str, str]):
    """Prevents: a refused question about a user passes for a session that has ended."""
    with server.saying("GET", f"{USERS}/{LUID}", answer):
        assert server.site.user(LUID) == expected


# REST reference, List Personal Access Tokens for user.
TOKEN = '<personalAccessToken tokenName="{}" createdAt="2025-01-01T00:00:00Z" {}/>'
TOKENS = (
    TOKEN.format("nightly", 'expiresAt="2026-01-01T00:00:00Z" lastUsedAt="2025-06-01T00:00:00Z"'),
    TOKEN.format("for ever", ""),
    TOKEN.format("exact", 'expiresAt="2026-01-01T00:00:00.5Z"'),
    TOKEN.format("odd", 'expiresAt="never"'),
    "<personalAccessToken/>",
)


def test_tokens(server: Server):
    """Prevents: one token without an expiry makes the expiry of all other tokens unknown."""
    answer = xml(f"<personalAccessTokens>{''.join(TOKENS)}</personalAccessTokens>")
    new_year = datetime(2026, 1, 1, tzinfo=UTC)
    with server.saying("GET", f"{USERS}/[^/]+/personal-access-tokens", answer):
        ends = server.site.token_ends()
        assert [*access_checks.on_token(server.site, "for ever")] == []
    assert ends == {"nightly": new_year, "exact": new_year.replace(microsecond=500_000)}


def test_no_look_at_a_token_that_is_not_used(server: Server):
    """Prevents: the command `doctor` looks for the token of a connected app, which has no token."""
    path = f"{USERS}/[^/]+/personal-access-tokens"
    with server.saying("GET", path, error(401, "401002")) as asked:
        assert [*access_checks.on_token(server.site, "")] == []
    assert asked == []


RULES = (
    "<granteeCapabilities>{}<capabilities>"
    '<capability name="Read" mode="Allow"/><capability name="Write" mode="Deny"/>'
    '<capability name="PulseMetricDefine" mode="Allow"/><capability name="New" mode="Allow"/>'
    "</capabilities></granteeCapabilities>"
)
TAKEN = {("1", "Read"): "Allow", ("1", "Write"): "Deny", ("1", "PulseMetricDefine"): "Allow",
         ("1", "New"): "Allow"}  # fmt: skip
OTHERS = (
    # REST reference, Query Data Source Permissions; group sets since 3.22; and invented grantees,
    # as later versions may add.
    RULES.format('<user id="2"/>'),
    RULES.format('<groupSet id="3" name="All"/>'),
    RULES.format('<serviceAccount id="4"/>'),
    RULES.format('<agent id="5"><owner id="6"/></agent>'),
    RULES.format(""),
    "<granteeCapabilities/>",
)
SOURCE = f'<datasource id="{LUID}" name="Sales"><owner id="7"/></datasource>'


@pytest.mark.parametrize(
    "body",
    [
        # TSC, datasource_populate_permissions.xml; and with a parent before or inside the
        # permissions.
        f"<permissions>{SOURCE}{{}}</permissions>",
        '<parent type="Project" id="8"/><permissions>{}</permissions>',
        '<permissions><parent type="Project" id="8"/>{}</permissions>',
    ],
)
def test_permissions(server: Server, body: str):
    """Prevents: permissions cannot be read because a grantee of a new kind has some of them."""
    rules = "".join([*OTHERS, RULES.format('<group id="1"/>')])
    with server.saying("GET", PERMISSIONS, xml(body.format(rules))):
        assert properties.permissions(server.site, LUID) == TAKEN


@pytest.mark.parametrize("body", ["<permissions/>", f"<permissions>{SOURCE}</permissions>"])
def test_no_permissions(server: Server, body: str):
    """Prevents: a data source without permissions ends in an error, and can never get any."""
    with server.saying("GET", PERMISSIONS, xml(body)):
        assert properties.permissions(server.site, LUID) == {}


def sent_tags(server: Server, *tags: str) -> bytes:
    bodies: list[bytes] = []

    def respond(call: Call) -> None:
        bodies.append(call.body)
        xml('<tags><tag label="a"/></tags>')(call)

    with server.front.answering("PUT", TAGS, respond):
        server.site.tag(LUID, tags)
    (body,) = bodies
    return body


@pytest.mark.parametrize(
    ("tag", "label"),
    [
        ("finance", b'"finance"'),
        ("tableau-pipeline:eu/sales", b'"tableau-pipeline:eu/sales"'),
        # TSC, pull request 1782: the server splits a tag with a separator unless quotes enclose it.
        ("to the board", b'"&quot;to the board&quot;"'),
        ("a,b", b'"&quot;a,b&quot;"'),
        ("R&D\u00a0EU", b'"&quot;R&amp;D&#160;EU&quot;"'),
    ],
)
def test_tags_that_are_sent(server: Server, tag: str, label: bytes):
    """Prevents: the server splits a tag into several, so each refresh sends the tag again."""
    body = sent_tags(server, tag)
    assert body == b"<tsRequest><tags><tag label=%s /></tags></tsRequest>" % label


def test_tags_that_are_gone(server: Server):
    """Prevents: a tag that has just gone stops the pipeline from removing other tags."""

    def respond(call: Call) -> None:
        gone = call.path.endswith("/a%2Fb%20%231")
        (error(404, "404007") if gone else raw(b"", status=204))(call)

    with server.saying("DELETE", f"{TAGS}/.*", respond) as asked:
        server.site.untag(LUID, ["a/b #1", "c"])
    assert [each.rpartition("/")[2] for each in asked] == ["a%2Fb%20%231", "c"]
    with (
        server.saying("DELETE", f"{TAGS}/.*", error(403, "403004")),
        pytest.raises(RefusedError, match="403004"),
    ):
        server.site.untag(LUID, ["c"])


# TSC, dqw_by_content_type.xml.
WARNING = (
    '<dataQualityWarning id="{}" userDisplayName="Alice" contentId="9" contentType="DATASOURCE"'
    ' message="{}" type="WARNING" isActive="true" createdAt="2021-04-09T18:39:54Z"'
    ' updatedAt="2021-04-09T18:39:54Z" isSevere="true"><site id="8"/><owner id="7"/>'
    "</dataQualityWarning>"
)
LIST = "<dataQualityWarningList>{}</dataQualityWarningList>"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (xml(LIST.format(WARNING.format("1", "Old") + WARNING.format("2", ""))),
         [("1", "Old"), ("2", "")]),
        (xml(LIST.format('<dataQualityWarning id="1"/>')), [("1", "")]),
        # For an asset without a warning, a server may answer in either of these two ways.
        (xml(LIST.format("")), []),
        (error(404, "404030"), []),
    ],
)  # fmt: skip
def test_warnings(server: Server, answer: Any, found: list[tuple[str, str]]):
    """Prevents: a missing warning ends in an error, so that no warning can ever be set."""
    with server.saying("GET", WARNINGS, answer):
        assert properties.quality_warnings(server.site, LUID) == found


def test_first_warning(server: Server):
    """Prevents: the first refresh that fails sets no warning."""
    added = xml(WARNING.format("1", "Late (ours)"))
    with (
        server.saying("GET", WARNINGS, error(404, "404030")),
        server.saying("POST", WARNINGS, added) as asked,
    ):
        properties.set_warning(server.site, LUID, "ours", None)
        assert asked == []
        properties.set_warning(server.site, LUID, "ours", "Late")
    assert len(asked) == 1


@pytest.mark.parametrize("code", ["404004", "403157"])
def test_warnings_that_cannot_be_read(server: Server, code: str):
    """Prevents: a warning that the pipeline may not read counts as absent."""
    with (
        server.saying("GET", WARNINGS, error(int(code[:3]), code)),
        pytest.raises(RefreshError, match=code),
    ):
        properties.quality_warnings(server.site, LUID)


@pytest.mark.parametrize(
    ("change", "code", "remedy"),
    [
        # TSC, issues 1072 and 1313; REST reference, Update Data Source.
        ({"owner": "1"}, "403141", "Only its owner, a leader of its project or an administrator"),
        ({"owner": "1"}, "403027", "Only administrators may change the owner"),
        ({"isCertified": "true"}, "403141", "or do not declare it"),
    ],
)
def test_change_that_others_may_make(server: Server, change: Any, code: str, remedy: str):
    """Prevents: an error does not say who may make a change that was refused."""
    with (
        server.saying("PUT", ITEM, error(403, code, "'x' isn't authorized to update it")),
        pytest.raises(RefusedError, match=remedy),
    ):
        properties.set_properties(server.site, LUID, **change)

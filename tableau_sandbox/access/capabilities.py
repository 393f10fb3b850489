"""Tableau's capabilities and site roles, by the names that the REST API gives them.

Sources: "Permission Capabilities and Templates" and "Permissions, Site Roles, and Licenses" in
Tableau's help, and the permissions methods of the REST API reference.
"""

from collections.abc import Mapping

READ = "Read"
WRITE = "Write"
PROJECT_LEADER = "ProjectLeader"
CONNECT = "Connect"
DOWNLOAD = "ExportXml"
MOVE = "ChangeHierarchy"
DELETE = "Delete"
CHANGE_PERMISSIONS = "ChangePermissions"
REFRESH = "ExtractRefresh"
QUERY_BY_API = "VizqlDataApiAccess"

OF_PROJECTS = frozenset({READ, WRITE, PROJECT_LEADER})
OF_DATASOURCES = frozenset(
    {
        READ,
        WRITE,
        CONNECT,
        DOWNLOAD,
        MOVE,
        DELETE,
        CHANGE_PERMISSIONS,
        REFRESH,
        QUERY_BY_API,
        "PulseMetricDefine",
        "SaveAs",
    }
)
# The sandbox has no such content. What is to hold for it can be set all the same.
OF_WORKBOOKS = frozenset(
    {
        READ,
        WRITE,
        DOWNLOAD,
        MOVE,
        DELETE,
        CHANGE_PERMISSIONS,
        REFRESH,
        *("AddComment", "ViewComments", "Filter", "ShareView", "WebAuthoring", "SaveAs"),
        *("ExportData", "ExportImage", "ViewUnderlyingData", "RunExplainData"),
        "CreateRefreshMetrics",
    }
)
OF_FLOWS = frozenset(
    {
        READ,
        WRITE,
        DOWNLOAD,
        MOVE,
        DELETE,
        CHANGE_PERMISSIONS,
        *("Execute", "WebAuthoringForFlows"),
    }
)
OF_LENSES = frozenset({READ, WRITE, MOVE, DELETE, CHANGE_PERMISSIONS})

_ALL = OF_PROJECTS | OF_DATASOURCES
_VIEWER = frozenset({READ, CONNECT, QUERY_BY_API})
# What a user of a site role can have at most; no rule gives more.
CEILINGS: Mapping[str, frozenset[str]] = {
    "ServerAdministrator": _ALL,
    "SiteAdministratorCreator": _ALL,
    "SiteAdministratorExplorer": _ALL,
    "Creator": _ALL,
    "ExplorerCanPublish": _ALL,
    "Explorer": _VIEWER | {DOWNLOAD, "PulseMetricDefine"},
    "Viewer": _VIEWER,
    "Unlicensed": frozenset(),
}
SITE_ROLES = tuple(CEILINGS)

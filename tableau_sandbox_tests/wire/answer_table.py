"""What answers may hold: one line for each method, one for each kind of element.

An element has its attributes, then after a bar its children in their order. `?` stands after what
it may lack, `*` after what it may have any number of. A child is of the kind of its name, or of the
kind after the equals sign. The sources are Tableau's REST API reference and its Python client.
"""

ELEMENTS = {
    "text": "",
    "pagination": "pageNumber pageSize totalAvailable",
    "error": "code | summary=text detail=text",
    "serverInfo": "| productVersion restApiVersion=text",
    "productVersion": "build",
    "credentials": "token estimatedTimeToExpiration | site=thisSite user=identity",
    "thisSite": "id contentUrl",
    "identity": "id",
    "named": "id name",
    "sites": "| site*",
    "site": "id name contentUrl adminMode state revisionHistoryEnabled revisionLimit?",
    "users": "| user*",
    "user": "id name siteRole fullName",
    "projects": "| project*",
    "project": (
        "id name description createdAt updatedAt contentPermissions parentProjectId?"
        " topLevelProject writeable | owner contentsCounts"
    ),
    "owner": "id name fullName",
    "contentsCounts": "projectCount workbookCount viewCount datasourceCount dataSourceCount?",
    "datasources": "| datasource*",
    "datasource": (
        "id name contentUrl type createdAt updatedAt description? size isCertified"
        " certificationNote? encryptExtracts hasExtracts isPublished useRemoteQueryAgent"
        " webpageUrl | project=named owner tags"
    ),
    "tags": "| tag*",
    "tag": "label",
    "connections": "| connection*",
    "connection": (
        "id type serverAddress serverPort? userName embedPassword queryTaggingEnabled"
        " | datasource=named"
    ),
    "revisions": "| revision*",
    "revision": "revisionNumber publishedAt deleted current sizeInBytes | publisher=named",
    "fileUpload": "uploadSessionId fileSize",
    "job": (
        "id mode type progress? createdAt startedAt? completedAt? finishCode?"
        " | extractRefreshJob? publishDatasourceJob? updateUploadedFileJob? statusNotes?"
    ),
    "extractRefreshJob": "| notes=text? datasource=named",
    "publishDatasourceJob": "| datasource=named",
    "updateUploadedFileJob": "| datasource=named connectionLuid=text notes=text?",
    "statusNotes": "| statusNote*",
    "statusNote": "type value text",
    "backgroundJobs": "| backgroundJob*",
    "backgroundJob": "id status createdAt startedAt? endedAt? priority jobType title",
    "groups": "| group*",
    "group": "id name | domain",
    "domain": "name",
    "permissions": "| parent? project=owned? datasource=owned? granteeCapabilities*",
    "parent": "type id",
    "owned": "id name | owner=identity",
    "granteeCapabilities": "| user=identity? group=identity? capabilities",
    "capabilities": "| capability*",
    "capability": "name mode",
    # Sandboxes have none of these.
    **dict.fromkeys(("workbooks", "views", "flows", "schedules", "tasks"), "|"),
}

# `{}` is one part of the path; a file, or nothing at all, is no element.
ANSWERS = """
GET    serverInfo                                             200 serverInfo
POST   auth/signin                                            200 credentials
POST   auth/switchSite                                        200 credentials
POST   auth/signout                                           204
GET    sites                                                  200 pagination sites
GET    sites/{}                                               200 site
GET    sites/{}/users                                         200 pagination users
GET    sites/{}/users/{}                                      200 user
GET    sites/{}/projects                                      200 pagination projects
POST   sites/{}/projects                                      201 project
PUT    sites/{}/projects/{}                                   200 project
DELETE sites/{}/projects/{}                                   204
GET    sites/{}/projects/{}/permissions                       200 permissions
PUT    sites/{}/projects/{}/permissions                       200 permissions
DELETE sites/{}/projects/{}/permissions/{}/{}/{}/{}           204
GET    sites/{}/projects/{}/default-permissions/{}            200 permissions
PUT    sites/{}/projects/{}/default-permissions/{}            200 permissions
DELETE sites/{}/projects/{}/default-permissions/{}/{}/{}/{}/{} 204
GET    sites/{}/datasources                                   200 pagination datasources
POST   sites/{}/datasources                                   201 datasource
POST   sites/{}/datasources                                   202 job
GET    sites/{}/datasources/{}                                200 datasource
PUT    sites/{}/datasources/{}                                200 datasource
DELETE sites/{}/datasources/{}                                204
GET    sites/{}/datasources/{}/permissions                    200 permissions
PUT    sites/{}/datasources/{}/permissions                    200 permissions
DELETE sites/{}/datasources/{}/permissions/{}/{}/{}/{}        204
GET    sites/{}/datasources/{}/content                        200 file
POST   sites/{}/datasources/{}/refresh                        202 job
GET    sites/{}/datasources/{}/connections                    200 connections
PUT    sites/{}/datasources/{}/connections                    200 connections
PUT    sites/{}/datasources/{}/connections/{}                 200 connection
PATCH  sites/{}/datasources/{}/data                           202 job
PATCH  sites/{}/datasources/{}/connections/{}/data            202 job
PUT    sites/{}/datasources/{}/tags                           200 tags
DELETE sites/{}/datasources/{}/tags/{}                        204
GET    sites/{}/datasources/{}/revisions                      200 pagination revisions
GET    sites/{}/datasources/{}/revisions/{}/content           200 file
DELETE sites/{}/datasources/{}/revisions/{}                   204
POST   sites/{}/fileUploads                                   201 fileUpload
PUT    sites/{}/fileUploads/{}                                200 fileUpload
GET    sites/{}/jobs                                          200 pagination backgroundJobs
GET    sites/{}/jobs/{}                                       200 job
PUT    sites/{}/jobs/{}                                       200
GET    sites/{}/workbooks                                     200 pagination workbooks
GET    sites/{}/views                                         200 pagination views
GET    sites/{}/flows                                         200 pagination flows
GET    sites/{}/groups                                        200 pagination groups
POST   sites/{}/groups                                        201 group
DELETE sites/{}/groups/{}                                     204
GET    sites/{}/groups/{}/users                               200 pagination users
POST   sites/{}/groups/{}/users                               200 user
DELETE sites/{}/groups/{}/users/{}                            204
GET    schedules                                              200 pagination schedules
GET    sites/{}/schedules                                     200 pagination schedules
GET    sites/{}/tasks/extractRefreshes                        200 tasks
"""

# All other values are texts.
TIMES = "createdAt updatedAt startedAt completedAt endedAt publishedAt"
FLAGS = (
    "isCertified isPublished hasExtracts encryptExtracts useRemoteQueryAgent topLevelProject"
    " writeable embedPassword queryTaggingEnabled deleted current revisionHistoryEnabled"
)
NUMBERS = (
    "pageNumber pageSize totalAvailable size fileSize revisionLimit projectCount workbookCount"
    " viewCount datasourceCount dataSourceCount progress finishCode sizeInBytes revisionNumber"
    " serverPort priority code"
)
MAY_BE_EMPTY = "contentUrl description serverAddress userName"

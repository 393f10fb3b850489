"""Data sources: records, tags, connections, downloads, revisions and permissions; and jobs."""

import zipfile
from io import BytesIO

import pytest

from tableau_sandbox_tests.contract.files import hyper_file, packaged_hyper, rows_file
from tableau_sandbox_tests.contract.session import Answer
from tableau_sandbox_tests.contract.sources import Source, fact
from tableau_sandbox_tests.contract.workspace import ROWS, Published, Workspace

_ONE = "sites/{site}/datasources/{datasource}"
_UPDATE = f"PUT {_ONE}"
_TAG = f"PUT {_ONE}/tags"
_CONTENT = f"GET {_ONE}/content"
_PERMISSIONS = f"{_ONE}/permissions"
_DEFAULTS = "sites/{site}/projects/{project}/default-permissions/datasources"
_REVISION = f"{_ONE}/revisions/{{revision}}"


@fact(_UPDATE, Source.REFERENCE)
def test_renamed_datasource(workspace: Workspace):
    """A renamed data source keeps its LUID and its content URL."""
    target, name = workspace.published(), workspace.new_name()
    before = workspace.record(target)["datasource@contentUrl"]
    workspace.send(f"PUT {target.path} <datasource name='{name}'/>").succeeds()
    after = workspace.record(target)
    assert (after["datasource@name"], after["datasource@contentUrl"]) == (name, before)


@fact(_UPDATE, Source.REFERENCE)
def test_renamed_to_a_taken_name(workspace: Workspace):
    """A rename to a taken name in the project is refused with 409015; case does not matter."""
    target, name = workspace.published(), workspace.shared.name.upper()
    workspace.send(f"PUT {target.path} <datasource name='{name}'/>").is_refused("409015")


@fact(_UPDATE, Source.REFERENCE)
def test_certified_datasource(workspace: Workspace):
    """Administrators and project leaders certify a data source."""
    change = "<datasource isCertified='true' certificationNote='Seen'/>"
    answer = workspace.send(f"PUT {workspace.published().path} {change}")
    if answer.status == 403:
        pytest.skip("the user may not certify data sources")
    assert answer.succeeds()["datasource@isCertified"] == "true"


def _add_tag(workspace: Workspace, target: Published, label: str) -> set[str | None]:
    request = f"PUT {target.path}/tags <tags><tag label='{label}'/></tags>"
    return set(workspace.send(request).succeeds().all("tags/tag@label"))


@fact(_TAG, Source.REFERENCE)
def test_added_tags(workspace: Workspace):
    """A new tag is added to the tags that a data source has."""
    target = workspace.published()
    _add_tag(workspace, target, "first")
    _add_tag(workspace, target, "second")
    assert sorted(workspace.record(target).all("datasource/tags/tag@label")) == ["first", "second"]


@fact(
    _TAG,
    Source.TSC,
    tag_in_quotes=(
        "A tag with a space is sent in double quotes, which are not part of the tag",
        "&quot;two words&quot;",
        {"two words"},
    ),
    tags_without_quotes=(
        "Without quotes, a space or a comma separates two tags",
        "one two,three",
        {"one", "two", "three"},
    ),
)
def test_tags(workspace: Workspace, *, claim: str, label: str, tags: set[str]):
    """{claim}."""
    assert _add_tag(workspace, workspace.published(), label) == tags


@fact(_TAG, Source.UNSTATED)
def test_tags_leave_the_stamp(workspace: Workspace):
    """Adding a tag does not move updatedAt."""
    target = workspace.published()
    before = workspace.record(target)["datasource@updatedAt"]
    # A stamp that moves would differ in the next second.
    workspace.pass_a_second()
    _add_tag(workspace, target, "seen")
    assert workspace.record(target)["datasource@updatedAt"] == before


@fact("PUT sites/{site}/datasources/{datasource}/connections/{connection}", Source.TSC)
def test_changed_connection(workspace: Workspace):
    """A change of a connection is answered with the identifier of the connection."""
    path = f"{workspace.published().path}/connections"
    luid = workspace.ask("GET", path).succeeds()["connections/connection@id"]
    answer = workspace.send(f"PUT {path}/{luid} <connection userName='somebody'/>").succeeds()
    assert answer["connection@id"] == luid


def _named(answer: Answer) -> str:
    return answer.succeeds().headers.get("Content-Disposition", "")


@fact(_CONTENT, Source.TSC)
def test_downloaded_package(workspace: Workspace):
    """A published .hyper file is downloaded as a .tdsx, named in Content-Disposition."""
    answer = workspace.send("GET {shared}/content")
    assert 'name="tableau_datasource"' in _named(answer)
    assert f'filename="{workspace.shared.name}.tdsx"' in _named(answer)
    assert answer.headers["Content-Type"].split(";")[0] == "application/octet-stream"


@fact(_CONTENT, Source.TSC)
def test_downloaded_rows(workspace: Workspace):
    """The package has the published rows, in a .hyper file below Data/."""
    path, _ = packaged_hyper(workspace.send("GET {shared}/content").succeeds().content)
    assert path.startswith("Data/")
    assert workspace.rows(workspace.shared) == [*ROWS]


@fact(_CONTENT, Source.LIVE_MESSAGES)
def test_generated_model(workspace: Workspace):
    """The server makes a .tds for a published .hyper file."""
    content = workspace.send("GET {shared}/content").succeeds().content
    with zipfile.ZipFile(BytesIO(content)) as package:
        assert len([name for name in package.namelist() if name.endswith(".tds")]) == 1


@fact(_CONTENT, Source.EMPLOYEES)
def test_download_without_the_extract(workspace: Workspace):
    """A download without the extract is a .tdsx."""
    answer = workspace.send("GET {shared}/content?includeExtract=False")
    assert _named(answer).endswith('.tdsx"')
    with zipfile.ZipFile(BytesIO(answer.content)) as package:
        assert any(name.endswith(".tds") for name in package.namelist())


@fact(_CONTENT, Source.UNSTATED)
def test_data_without_the_extract(workspace: Workspace):
    """A download without the extract has no data."""
    answer = workspace.send("GET {shared}/content?includeExtract=False").succeeds()
    with zipfile.ZipFile(BytesIO(answer.content)) as package:
        assert [name for name in package.namelist() if name.endswith(".hyper")] == []


@pytest.mark.slow
@fact(_CONTENT, Source.UNSTATED)
def test_large_data_without_the_extract(workspace: Workspace):
    """A download without the extract has no data, even for a file above 16 MB."""
    columns = ", ".join(f"RANDOM() AS c{number}" for number in range(24))
    numbers = "GENERATE_SERIES(1, 100000) AS numbers(id)"
    file = hyper_file(f'CREATE TABLE "Extract"."Extract" AS SELECT id, {columns} FROM {numbers}')
    assert len(file) > 16 * 2**20
    target = workspace.published(file)
    answer = workspace.send(f"GET {target.path}/content?includeExtract=False").succeeds()
    with zipfile.ZipFile(BytesIO(answer.content)) as package:
        assert [name for name in package.namelist() if name.endswith(".hyper")] == []


@fact(f"GET {_ONE}/revisions", Source.REFERENCE)
def test_revision_of_each_publish(workspace: Workspace):
    """Each publish makes a revision; the last revision is current."""
    target = workspace.published()
    workspace.publish(target.name, query="overwrite=true").succeeds(201)
    answer = workspace.send(f"GET {target.path}/revisions").succeeds()
    path = "revisions/revision"
    assert sorted(answer.all(f"{path}@revisionNumber")) == ["1", "2"]
    assert answer.all(f"{path}[@current='true']@revisionNumber") == ["2"]
    answer.element(f"{path}/publisher")


@fact(f"GET {_REVISION}/content", Source.REFERENCE)
def test_earlier_revision(workspace: Workspace):
    """An earlier revision can be downloaded with its own rows."""
    target = workspace.published()
    file = rows_file((3, "three"))
    workspace.publish(target.name, file, query="overwrite=true").succeeds(201)
    assert workspace.rows(target, of="/revisions/1") == [*ROWS]


_JOB = "GET sites/{site}/jobs/{job}"
# This many jobs keep the last of them in the queue until a test cancels it.
_QUEUE = 8
_CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}


def _cleared(workspace: Workspace) -> Answer:
    """Return the finished job of an update of a new data source."""
    return workspace.finished(workspace.update(workspace.published(), [_CLEAR]))


@fact("POST sites/{site}/datasources", Source.TSC)
def test_unfinished_job(workspace: Workspace):
    """A job that has just been queued has neither a finishCode nor a completedAt."""
    answer = workspace.publish(query="asJob=true").succeeds(202)
    assert (answer.get("job@finishCode"), answer.get("job@completedAt")) == (None, None)
    assert answer["job@progress"] == "0"
    assert answer["job@createdAt"]


@fact(_JOB, Source.TSC)
def test_finished_job(workspace: Workspace):
    """A successful job has progress 100, finishCode 0 and its times in order."""
    job = _cleared(workspace)
    assert (job["job@progress"], job["job@finishCode"]) == ("100", "0")
    times = [job[f"job@{name}"] for name in ("createdAt", "startedAt", "completedAt")]
    assert times == sorted(times)


@fact(_JOB, Source.SCHEMA)
def test_finished_update_names_its_target(workspace: Workspace):
    """The job of an update names its data source and connection."""
    target = workspace.published()
    job = workspace.finished(workspace.update(target, [_CLEAR]))
    assert job["job/updateUploadedFileJob/datasource@id"] == target.luid
    assert job["job/updateUploadedFileJob/connectionLuid"]


@fact(_JOB, Source.SCHEMA)
def test_order_in_a_job(workspace: Workspace):
    """The job of a failed update names its data source, its connection and then its notes."""
    batch = [_CLEAR | {"target-table": "NoSuchTable"}]
    job = workspace.finished(workspace.update(workspace.shared, batch))
    children = [each.tag for each in job.element("job/updateUploadedFileJob")]
    assert children == ["datasource", "connectionLuid", "notes"]


@fact(_JOB, Source.MIGRATION_SDK)
def test_notes_of_a_failed_publish(workspace: Workspace):
    """A failed publish has finishCode 1 and a note with its error code."""
    answer = workspace.publish(workspace.new_name(), b"this is no .hyper file", query="asJob=true")
    job = workspace.finished(answer)
    assert job["job@finishCode"] == "1"
    assert "errorCode" in job.all("job/statusNotes/statusNote@type")


@fact("PUT sites/{site}/jobs/{job}", Source.REFERENCE)
def test_cancelled_too_late(workspace: Workspace):
    """A job that is complete cannot be cancelled: 403091."""
    job = workspace.finished(workspace.publish(query="asJob=true"))
    workspace.send(f"PUT jobs/{job['job@id']}").is_refused("403091")


@pytest.mark.slow
@fact("PUT sites/{site}/jobs/{job}", Source.UPDATE_GUIDE)
def test_cancelled_update(workspace: Workspace):
    """A queued update is cancelled with 200 or 204, finishCode 2 and no effect."""
    targets = [workspace.published() for _ in range(_QUEUE)]
    *_, last = [workspace.update(each, [_CLEAR]).succeeds(202)["job@id"] for each in targets]
    answer = workspace.send(f"PUT jobs/{last}")
    if answer.status == 403:
        pytest.skip("the job was too fast")
    answer.succeeds(200, 204)
    assert workspace.wait(last)["job@finishCode"] == "2"
    assert workspace.rows(targets[-1]) == [*ROWS]


@pytest.mark.slow
@fact(_JOB, Source.UNSTATED)
def test_finished_job_is_kept(workspace: Workspace):
    """A job can be asked for after its end."""
    job = _cleared(workspace)
    workspace.pass_a_second()
    assert workspace.send(f"GET jobs/{job['job@id']}").succeeds()["job@finishCode"] == "0"


def _listed(workspace: Workspace, job: Answer) -> dict[str, str]:
    """Return the entry of a job in the list of jobs."""
    since = job["job@createdAt"]
    answer = workspace.send(f"GET jobs?filter=createdAt:gte:{since}&pageSize=1000")
    if answer.status == 403:
        pytest.skip("the user is no administrator")
    path = f"backgroundJobs/backgroundJob[@id='{job['job@id']}']"
    return answer.succeeds().element(path).attrib


@fact("GET sites/{site}/jobs", Source.UNSTATED)
def test_kind_of_an_update_in_the_list(workspace: Workspace):
    """A listed update is called update_uploaded_file."""
    assert _listed(workspace, _cleared(workspace))["jobType"] == "update_uploaded_file"


@fact("GET sites/{site}/jobs", Source.UNSTATED)
def test_kind_of_a_publish_in_the_list(workspace: Workspace):
    """A listed publish is called publish_datasource."""
    job = workspace.finished(workspace.publish(query="asJob=true"))
    assert _listed(workspace, job)["jobType"] == "publish_datasource"


@fact("GET sites/{site}/jobs", Source.UNSTATED)
def test_titles_in_the_list(workspace: Workspace):
    """The title of a listed job is the name of its data source."""
    target, name = workspace.published(), workspace.new_name()
    updated = workspace.finished(workspace.update(target, [_CLEAR]))
    published = workspace.finished(workspace.publish(name, query="asJob=true"))
    assert _listed(workspace, updated).get("title") == target.name
    assert _listed(workspace, published).get("title") == name


@fact("GET sites/{site}/jobs", Source.SCHEMA)
def test_record_of_a_listed_job(workspace: Workspace):
    """An entry in the list of jobs has a status, times, a priority and a kind."""
    listed = _listed(workspace, _cleared(workspace))
    assert listed["status"] == "Success"
    assert {"createdAt", "startedAt", "endedAt", "priority", "jobType"} <= set(listed)


_WARNINGS = "sites/{site}/dataQualityWarnings/datasource/{datasource}"


def _warnings(workspace: Workspace, method: str, target: Published, body: str = "") -> Answer:
    """Ask for the warnings of a data source, or add one."""
    answer = workspace.send(f"{method} dataQualityWarnings/datasource/{target.luid} {body}".strip())
    if answer.status == 403:
        pytest.skip("the site has no license for data quality warnings, or the user no right")
    return answer


@fact(f"GET {_WARNINGS}", Source.UNSTATED)
def test_warnings_of_an_asset_without_one(workspace: Workspace):
    """A request for the warnings of a data source that has none is refused with 404030."""
    _warnings(workspace, "GET", workspace.published()).is_refused("404030")


@fact(f"POST {_WARNINGS}", Source.TSC)
def test_added_warning(workspace: Workspace):
    """A data quality warning is added, and listed from then on."""
    target = workspace.published()
    body = "<dataQualityWarning type='WARNING' isActive='true' message='Seen' isSevere='false'/>"
    _warnings(workspace, "POST", target, body).succeeds()
    listed = _warnings(workspace, "GET", target).succeeds()
    assert listed.all("dataQualityWarningList/dataQualityWarning@message") == ["Seen"]


def _grant(workspace: Workspace, path: str, capability: str) -> Answer:
    capabilities = f"<capabilities><capability name='{capability}' mode='Allow'/></capabilities>"
    rule = f"<granteeCapabilities><user id='{{user}}'/>{capabilities}</granteeCapabilities>"
    return workspace.send(f"PUT {path} <permissions>{rule}</permissions>")


def _has(workspace: Workspace, answer: Answer, capability: str) -> bool:
    """Return whether a rule in the answer allows the user a capability."""
    return any(
        rule.find(f"capabilities/capability[@name='{capability}'][@mode='Allow']") is not None
        for rule in answer.succeeds().elements("permissions/granteeCapabilities")
        if rule.find(f"user[@id='{workspace.session.user}']") is not None
    )


@fact(f"PUT {_PERMISSIONS}", Source.REFERENCE)
def test_granted_capability(workspace: Workspace):
    """A capability is granted to a user, and listed from then on."""
    path = f"{workspace.published().path}/permissions"
    assert _has(workspace, _grant(workspace, path, "Read"), "Read")
    assert _has(workspace, workspace.ask("GET", path), "Read")


@fact(f"DELETE {_PERMISSIONS}/{{grantees}}/{{grantee}}/{{capability}}/{{mode}}", Source.REFERENCE)
def test_revoked_capability(workspace: Workspace):
    """A capability is revoked with 204."""
    path = f"{workspace.published().path}/permissions"
    _grant(workspace, path, "Read").succeeds()
    workspace.send(f"DELETE {path}/users/{{user}}/Read/Allow").succeeds(204)
    assert not _has(workspace, workspace.ask("GET", path), "Read")


@fact(f"PUT {_DEFAULTS}", Source.REFERENCE)
def test_default_permission_of_a_new_datasource(workspace: Workspace):
    """A data source begins with the default permissions of its project."""
    project = workspace.new_project()
    path = f"projects/{project}/default-permissions/datasources"
    _grant(workspace, path, "ExportXml").succeeds()
    target = workspace.published(project=project)
    assert _has(workspace, workspace.ask("GET", f"{target.path}/permissions"), "ExportXml")

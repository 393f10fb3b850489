"""The request that publishes a data source."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from xml.etree.ElementTree import Element

from tableau_sandbox import publishing
from tableau_sandbox.content.uploaded import HYPER, MODEL, PACKAGE, PARQUET, discard, read_content
from tableau_sandbox.errors import malformed, refusal
from tableau_sandbox.jobs.kinds import queue_publish
from tableau_sandbox.publishing import Publication
from tableau_sandbox.rest.answers import Reply, datasource_element
from tableau_sandbox.rest.jobs import accepted
from tableau_sandbox.rest.requests import Call, flag_attribute, name_attribute, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.rest.uploads import consume_upload
from tableau_sandbox.services import Services
from tableau_sandbox.store.accounts import default_project_luid

_FILE_TYPES = (HYPER, PACKAGE, PARQUET, MODEL)
_MODES = (publishing.CREATE_NEW, publishing.OVERWRITE, publishing.REPLACE, publishing.APPEND)


def publish_datasource(services: Services, call: Call) -> Reply:
    """Publish a file, at once or as a job."""
    publication = _publication(services, call)
    if publication.mode == publishing.REPLACE and services.options.replace == "refused":
        raise malformed("The query parameter 'replace' is not supported for data sources.")
    if publication.file_type == PACKAGE and not services.options.packages:
        raise malformed("Packaged data sources are not supported.")
    as_job = call.flag("asJob")
    publishing.find_target(services, publication, as_job=as_job)
    file = _take_file(services, call)
    if as_job:
        job = queue_publish(services, publication, file=file.name)
        return accepted(services, job)
    with _discarded_at_the_end(file):
        content = read_content(
            file,
            name=publication.name,
            file_type=publication.file_type,
            table_ids=services.options.table_ids,
        )
        if publishing.has_too_many_tables(services, publication, content):
            raise refusal(
                "400011", "There was a problem publishing the file: it has several tables."
            )
        with services.publishing:
            prepared = publishing.prepare(services, publication, content)
            with services.database.transaction():
                published = publishing.commit(services, prepared)
    services.sweep_content()
    return Reply(201, datasource_element(published, base_url=call.base_url))


def _publication(services: Services, call: Call) -> Publication:
    mode = _mode(call)
    if mode == publishing.REPLACE and not services.options.knows_replace:
        mode = publishing.CREATE_NEW
    request = parse_request(call.body, "datasource")
    project = request.find("project")
    chosen = "" if project is None else project.get("id", "")
    return Publication(
        site=call.site.luid,
        project=chosen or default_project_luid(call.site.luid),
        user=call.user.luid,
        name=name_attribute(request),
        mode=mode,
        file_type=_file_type(call),
        description=request.get("description"),
        use_remote_query_agent=_use_remote_query_agent(request),
    )


def _use_remote_query_agent(request: Element) -> bool:
    # At least one known client sends "none" if it does not know the value.
    if request.get("useRemoteQueryAgent", "").lower() == "none":
        return False
    return flag_attribute(request, "useRemoteQueryAgent", default=False)


def _mode(call: Call) -> str:
    modes = [mode for mode in _MODES if call.flag(mode)]
    if len(modes) > 1:
        raise refusal("400055", f"The modes {' and '.join(modes)} exclude each other.")
    return modes[0] if modes else publishing.CREATE_NEW


def _file_type(call: Call) -> str:
    session = call.query.get("uploadSessionId")
    if session and call.attachment:
        raise refusal("400010", "The request has both a file and an upload session.")
    if not session and not call.attachment:
        raise malformed("The request has no attachment for the data source.")
    claimed = call.query.get("datasourceType")
    if call.attachment is None:
        file_type = (claimed or "").lower()
    else:
        file_type = PurePosixPath(call.attachment.filename).suffix[1:].lower()
        if claimed is not None and claimed.lower() != file_type:
            detail = f"The file '{call.attachment.filename}' is not of the type '{claimed}'."
            raise refusal("400010", detail)
    if file_type not in _FILE_TYPES:
        known = ", ".join(_FILE_TYPES)
        raise refusal("400010", f"The file type '{file_type}' is not one of {known}.")
    return file_type


def _take_file(services: Services, call: Call) -> Path:
    if call.attachment is None:
        return consume_upload(services, call, call.query["uploadSessionId"])
    # Rename the file, because the API removes the attachment at the end of the request.
    return call.attachment.path.replace(services.files.new_incoming())


@contextmanager
def _discarded_at_the_end(file: Path) -> Generator[None]:
    try:
        yield
    finally:
        discard(file)


ROUTES = (
    Route(
        "POST",
        "sites/{site}/datasources",
        publish_datasource,
        ("tableau:datasources:create",),
        attachment="tableau_datasource",
    ),
)

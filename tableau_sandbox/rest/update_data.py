"""Answer the requests that update the data of a data source."""

from tableau_sandbox.access import WRITE
from tableau_sandbox.batch.grammar import GrammarError, parse_batch
from tableau_sandbox.errors import RestError, malformed, not_found, refusal
from tableau_sandbox.jobs.kinds import is_updated, queue_update
from tableau_sandbox.rest.answers import Reply, element
from tableau_sandbox.rest.datasources import check_connection, find_datasource
from tableau_sandbox.rest.jobs import accepted
from tableau_sandbox.rest.requests import Call
from tableau_sandbox.rest.router import Route
from tableau_sandbox.rest.uploads import consume_upload
from tableau_sandbox.services import Services
from tableau_sandbox.store import jobs
from tableau_sandbox.store.records import Datasource, Job

_LONGEST_DETAIL = 500
# The largest conditions take 15 MB: 5,000 terms, each with two names of 255 escaped characters.
_BATCH_BYTES = 16 << 20


def update_data(services: Services, call: Call) -> Reply:
    """Queue an action batch, unless a request with this RequestID did so in the last 24 hours."""
    datasource = find_datasource(services, call, to=WRITE, refused="403032")
    user = call.user
    if services.options.updates_by == "owner" and not (
        user.is_admin or datasource.owner == user.luid
    ):
        raise refusal("403004", f"'{user.name}' does not own '{datasource.name}'.")
    check_connection(call, datasource)
    if datasource.connection_class != "hyper" or datasource.has_extracts:
        raise not_found("Live Hyper file of the datasource", datasource.luid, code="404008")
    request_id = call.headers.get("RequestID", "").strip()
    if not request_id:
        raise malformed("The request lacks the header 'RequestID'.")
    # Hold the lock: if two equal requests arrive at once, the second must find the job of the
    # first.
    with services.database.lock:
        first = jobs.first_job(
            services.database,
            site=call.site.luid,
            request_id=request_id,
            now=services.now_seconds(),
        )
        if first is not None:
            return _repeated(services, first)
        if services.options.second_update == "refused" and is_updated(services, datasource):
            raise _update_exists()
        job = _queue(services, call, datasource, request_id=request_id)
    return accepted(services, job)


def _queue(services: Services, call: Call, datasource: Datasource, *, request_id: str) -> Job:
    if not call.headers.get("Content-Type", "").lower().startswith("application/json"):
        raise malformed("The Content-Type of an action batch must be application/json.")
    try:
        batch = parse_batch(call.body)
    except GrammarError as error:
        raise malformed(f"The action batch is malformed: {error!s:.{_LONGEST_DETAIL}}.") from error
    session = call.query.get("uploadSessionId")
    if batch.needs_payload and not session:
        raise malformed("The actions name source tables, but there is no 'uploadSessionId'.")
    limit = services.options.update_limit_bytes
    payload = consume_upload(services, call, session, limit=limit) if session else None
    with services.database.transaction():
        job = queue_update(
            services, datasource, user=call.user.luid, batch=call.body, payload=payload
        )
        jobs.remember_request(
            services.database,
            site=call.site.luid,
            request_id=request_id,
            job=job.luid,
            now=services.now_seconds(),
        )
    return job


def _update_exists() -> RestError:
    return RestError(
        "409094",
        "Data update job already exists",
        "A data update job for the datasource is already queued or in progress.",
    )


def _repeated(services: Services, first: Job) -> Reply:
    answer = services.options.repeated_request
    if answer == "conflict":
        raise _update_exists()
    if answer == "empty-job":
        return Reply(202, element("job"))
    return accepted(services, first)


ROUTES = tuple(
    Route(
        "PATCH",
        f"sites/{{site}}/datasources/{{datasource}}/{path}",
        update_data,
        ("tableau:hyper_data:update",),
        body_bytes=_BATCH_BYTES,
    )
    for path in ("data", "connections/{connection}/data")
)

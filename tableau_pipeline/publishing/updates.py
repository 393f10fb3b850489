"""Data updates: an action batch, and the upload with the tables that its actions name."""

import tableauserverclient as TSC

from tableau_pipeline.errors import RefusedError

_RECEIVED_BEFORE = "409093"
_MEGABYTE = 10**6
# Tableau does not document what a megabyte is here, nor whether the limit itself is allowed.
_MARGIN = 0.95
# REST API versions: no updates before 2021.3 (3.13), a larger limit from 2022.1 (3.15).
_FIRST_WITH_UPDATES, _FIRST_WITH_LARGE_ONES = "3.13", "3.15"


def payload_limit(server: TSC.Server) -> int:
    """Return the largest payload of an update in bytes; 0 if the server supports no updates."""
    if not server.check_at_least_version(_FIRST_WITH_UPDATES):
        return 0
    megabytes = 100 if server.check_at_least_version(_FIRST_WITH_LARGE_ONES) else 10
    return int(megabytes * _MEGABYTE * _MARGIN)


def send_update(
    server: TSC.Server,
    luid: str,
    *,
    batch: str,
    upload: str | None,
    request_id: str,
    connection: str | None,
) -> str | None:
    """Send a batch of actions; return the id of its job, or None if the server does not name it."""
    server.assert_at_least_version(_FIRST_WITH_UPDATES, "Updating data")
    path = f"{luid}/connections/{_known(server, luid, connection)}" if connection else luid
    # TSC's own call would also upload the payload, which has already been done.
    try:
        answer = server.datasources.patch_request(
            f"{server.datasources.baseurl}/{path}/data",
            batch.encode(),
            "application/json",
            parameters={
                "headers": {"requestid": request_id},
                "params": {"uploadSessionId": upload} if upload else {},
            },
        )
    except TSC.ServerResponseError as error:
        if error.code == _RECEIVED_BEFORE:
            return None
        raise
    jobs = TSC.JobItem.from_response(answer.content, server.namespace)
    return jobs[0].id if jobs else None


def _known(server: TSC.Server, luid: str, connection: str) -> str:
    datasource = server.datasources.get_by_id(luid)
    server.datasources.populate_connections(datasource)
    known = [str(item.id) for item in datasource.connections]
    if connection in known:
        return connection
    raise RefusedError(
        f'Data source "{datasource.name}" has no connection {connection}. It has: '
        f"{', '.join(known)}."
    )

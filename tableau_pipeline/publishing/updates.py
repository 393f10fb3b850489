"""Data updates: an action batch, and the upload with the tables that its actions name."""

import tableauserverclient as TSC

from tableau_pipeline.errors import RefusedError

_RECEIVED_BEFORE = "409093"
_MEGABYTE = 10**6
# What counts as a megabyte, and whether the limit itself is allowed, Tableau does not say.
_MARGIN = 0.95
# By REST API version: no updates at all before 2021.3, and more from 2022.1 on.
_FIRST_WITH_UPDATES, _FIRST_WITH_LARGE_ONES = "3.13", "3.15"


def payload_limit(server: TSC.Server) -> int:
    """How many bytes the payload of an update may have; 0 where there are no updates."""
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
    """Send a batch of actions; the id of its job, or None where the server does not name it."""
    server.assert_at_least_version(_FIRST_WITH_UPDATES, "Updating data")
    path = f"{luid}/connections/{_known(server, luid, connection)}" if connection else luid
    # TSC's own call uploads the payload too, which is to be done before.
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

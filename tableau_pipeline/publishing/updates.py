"""Data updates: an action batch, and the tables that its actions name."""

import json
from pathlib import Path

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
    payload: Path | None,
    request_id: str,
    connection: str | None,
) -> str | None:
    """Send a batch of actions; the id of its job, or None where the server does not name it."""
    to = _connection(server, luid, connection) if connection else luid
    try:
        job = server.datasources.update_hyper_data(
            to, request_id=request_id, actions=json.loads(batch)["actions"], payload=payload
        )
    except TSC.ServerResponseError as error:
        if error.code == _RECEIVED_BEFORE:
            return None
        raise
    except IndexError:
        # So TSC fails on an answer that accepts the request and speaks of no job.
        return None
    return job.id


def _connection(server: TSC.Server, luid: str, connection: str) -> TSC.ConnectionItem:
    datasource = server.datasources.get_by_id(luid)
    server.datasources.populate_connections(datasource)
    for item in datasource.connections:
        if item.id == connection:
            return item
    known = ", ".join(str(item.id) for item in datasource.connections)
    raise RefusedError(
        f'Data source "{datasource.name}" has no connection {connection}. It has: {known}.'
    )

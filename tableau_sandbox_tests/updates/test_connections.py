from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import publish


def connection_of(server: tsc.Server, item: tsc.DatasourceItem) -> tsc.ConnectionItem:
    server.datasources.populate_connections(item)
    (connection,) = item.connections
    return connection


def test_update_connection(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: new credentials of a connection are lost at once, outlive a publish, or leak.
    item = publish(server, one_row)
    connection = connection_of(server, item)
    connection.server_address, connection.server_port = "db.example.com", "5432"
    connection.username, connection.password = "reader", "a-secret-to-keep"
    connection.embed_password = True
    updated = server.datasources.update_connection(item, connection)
    assert updated is not None
    again = connection_of(server, item)
    for found in (updated, again):
        assert (found.server_address, found.server_port) == ("db.example.com", "5432")
        assert found.username == "reader"
    stored = b"".join(path.read_bytes() for path in sandbox.data_dir.glob("sandbox.sqlite*"))
    assert b"a-secret-to-keep" not in stored
    publish(server, one_row, mode="Overwrite")
    assert not connection_of(server, item).username


def test_unknown_connections(server: tsc.Server, one_row: Path):
    # Prevents: the credentials of another connection are changed.
    item = publish(server, one_row)
    connection = connection_of(server, item)
    connection._id = "nowhere"
    with pytest.raises(tsc.ServerResponseError, match="404020"):
        server.datasources.update_connection(item, connection)
    item._id = "nothing"
    with pytest.raises(tsc.ServerResponseError, match="404011"):
        connection_of(server, item)


def test_update_several_connections(server: tsc.Server, one_row: Path):
    # Prevents: a client that updates all connections at once is refused, or only seems to succeed.
    item = publish(server, one_row)
    luid = connection_of(server, item).id
    (updated,) = server.datasources.update_connections(item, [luid], None, "reader", "p", True)
    assert (updated.id, updated.username) == (luid, "reader")
    assert connection_of(server, item).username == "reader"
    for luids, code in {(luid, "nowhere"): "404020", (): "400000"}.items():
        with pytest.raises(tsc.ServerResponseError, match=code):
            server.datasources.update_connections(item, luids, None, "other")
    assert connection_of(server, item).username == "reader"


def test_senseless_port(server: tsc.Server, one_row: Path):
    # Prevents: a connection gets a port that no answer may contain.
    item = publish(server, one_row)
    connection = connection_of(server, item)
    connection.server_port = "many"
    with pytest.raises(tsc.ServerResponseError, match="400000"):
        server.datasources.update_connection(item, connection)

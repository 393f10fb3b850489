import sqlite3
from contextlib import closing
from pathlib import Path

import tableauserverclient as tsc

from tableau_sandbox.services import DATABASE_FILE
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.access.test_permissions import new_project
from tableau_sandbox_tests.access.test_roles import everyone, user
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import publish

NEWER = ("membership", "user_group", "session_scope", "rule", "rule_set")


def test_data_directory_from_before_rules(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: after an upgrade, nobody but the administrator sees what was published before."""
    item, project = publish(server, one_row), new_project(server, "Old")
    alice = user(sandbox, ALICE)
    sandbox.stop()
    with closing(sqlite3.connect(sandbox.data_dir / DATABASE_FILE)) as database:
        for trigger in ("rules_of_project", "rules_of_datasource"):
            database.execute(f"DROP TRIGGER {trigger}")
        for table in NEWER:
            database.execute(f"DROP TABLE {table}")
        database.commit()
    sandbox.start()
    assert alice.datasources.get_by_id(item.id).name == "Flights"
    assert {each.name for each in alice.projects.get()[0]} == {"Default", "Old"}
    alice.datasources.publish(tsc.DatasourceItem(project.id, name="New"), one_row, "CreateNew")


def test_deleted_rules_stay_deleted(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a restart opens what was closed to all users."""
    project, alice = server.projects.filter(name="Default")[0], user(sandbox, ALICE)
    rule = tsc.PermissionsRule(everyone(server), {"Read": "Allow", "Write": "Allow"})
    server.projects.delete_permission(project, rule)
    sandbox.restart()
    assert alice.projects.get()[0] == []

"""The source rows of an upsert that match no target row before the upsert changes any."""

from tableauhyperapi import Connection

from tableau_sandbox.batch.sql import aliased
from tableau_sandbox.batch.step import Step

# For a WHERE clause; the source does not change, so the positions of its rows do not either.
WAS_UNMATCHED = "s.ctid IN (SELECT row FROM unmatched)"


def create_unmatched(connection: Connection) -> None:
    """Create the table of these rows, outside any transaction: Hyper creates none inside."""
    connection.execute_command("CREATE TEMPORARY TABLE unmatched (row BIGINT)")


def find_unmatched(step: Step) -> None:
    """Remember the source rows that match no target row; forget those of earlier upserts."""
    step.run("DELETE FROM unmatched")
    step.run(
        f"INSERT INTO unmatched SELECT s.ctid FROM {aliased(step.rows)}"  # noqa: S608
        f" WHERE NOT EXISTS (SELECT 1 FROM {aliased(step.target)} WHERE {step.match})"
    )

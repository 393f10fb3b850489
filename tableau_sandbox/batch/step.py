from dataclasses import dataclass

from tableauhyperapi import Connection

from tableau_sandbox.batch.conditions import Condition
from tableau_sandbox.batch.sql import condition_sql
from tableau_sandbox.batch.tables import Table


@dataclass(frozen=True)
class Step:
    """An action whose tables exist.

    Attributes:
        connection: connected to both databases.
        position: the position of the action in its batch, from 0.
        target: the table that it changes.
        source: the table that it reads; None for a delete without one.
        condition: selects the rows.
        lenient: whether nullable target columns that the source lacks become NULL in new rows.
    """

    connection: Connection
    position: int
    target: Table
    source: Table | None
    condition: Condition
    lenient: bool

    @property
    def rows(self) -> Table:
        """The source, for actions that require one.

        Raises:
            LookupError: there is none.
        """
        if self.source is None:
            raise LookupError(f"action {self.position} has no source table")
        return self.source

    @property
    def match(self) -> str:
        """The condition as SQL."""
        return condition_sql(self.condition, target=self.target, source=self.source)

    def run(self, sql: str) -> None:
        """Execute a statement."""
        self.connection.execute_command(sql)

    def first(self, query: str) -> list | None:
        """Return the first row of a query, or None."""
        return next(iter(self.connection.execute_list_query(f"{query} LIMIT 1")), None)

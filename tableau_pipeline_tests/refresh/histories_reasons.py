"""Is a refusal true? Each sentence is held against what the rows and the server are."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.refresh.plan import Accept
from tableau_pipeline_tests.refresh.histories_oracle import contents
from tableau_pipeline_tests.refresh.histories_tables import Content, Model


@dataclass(frozen=True)
class Case:
    """What a refresh was refused for.

    Attributes:
        known: contents by table, of which some may be published: those of each earlier refresh
            that may have left something.
        unclear: earlier refreshes were cut off, or records were lost, or someone else published;
            what was lost may concern the metadata only.
        tagged: the data source carries our tag.
        troubled: the server itself was told to refuse.
    """

    declaration: Declaration
    models: Mapping[str, Model]
    now: datetime
    accept: Collection[Accept]
    known: Collection[Mapping[str, Content]]
    unclear: bool
    tagged: bool
    troubled: bool

    def untrue(self, reason: str) -> list[str]:
        """The sentences that are not true."""
        return [line for line in reason.splitlines() if not self._is_true(line)]

    def _is_true(self, line: str) -> bool:
        checks: list[tuple[str, Callable[..., bool]]] = [
            (r'Table "(\w+)": model "\w+" has ([\d,]+) rows, fewer than', self._too_few),
            (r'Table "(\w+)": model "\w+" has ([\d,]+) rows where ([\d,]+) are', self._shrunk),
            (r"The schema changed: (.+)\. on_schema_change", self._schema),
            (r'"[^"]+" must be overwritten, because', lambda: self.unclear),
            (r"A data source .* exists .* did not publish", lambda: not self.tagged),
            (r"refresh: diff: table \"(\w+)\": .* is not unique", self._repeated),
            (
                r"(?:refresh|Relationship).*: table \"(\w+)\": (\w+(?: or \w+)*) is NULL in (\d+)",
                self._null,
            ),
            (r"Relationship .*: table \"(\w+)\": k is not unique", self._repeated),
            (r'Model "(\w+)": its partitions', lambda name: bool(self._content(name).stale)),
            (r" failed: 429000 ", lambda: self.troubled),
        ]
        for pattern, check in checks:
            if match := re.search(pattern, line):
                return check(*match.groups())
        return False

    def _content(self, name: str) -> Content:
        table = self._table(name)
        return contents(self.models[table.model], table.retain, self.now)

    def _table(self, name: str) -> Table:
        return next(table for table in self.declaration.tables if table.name == name)

    def _too_few(self, name: str, rows: str) -> bool:
        least = self._table(name).guard.min_rows
        return (
            len(self._content(name).rows) == int(rows) < least and Accept.SHRINK not in self.accept
        )

    def _shrunk(self, name: str, rows: str, before: str) -> bool:
        most = Fraction(str(self._table(name).guard.max_shrink))
        return (
            len(self._content(name).rows) == int(rows)
            and int(before) in {len(known[name].rows) for known in self.known if name in known}
            and int(before) - int(rows) > int(before) * most
            and Accept.SHRINK not in self.accept
        )

    def _schema(self, phrases: str) -> bool:
        allowed = self.declaration.on_schema_change
        new = self._schemas({t.name: self.models[t.model].content for t in self.declaration.tables})
        return (
            Accept.SCHEMA not in self.accept
            and allowed != "publish"
            and any(
                new != old and (allowed == "refuse" or not old.items() <= new.items())
                for old in map(self._schemas, self.known)
            )
        )

    def _schemas(self, tables: Mapping[str, Content]) -> dict[tuple[str, str], str]:
        """Types by table and column; a table itself counts as one."""
        types = {(name, ""): "table" for name in tables}
        for name, content in tables.items():
            types.update({(name, column): type_ for column, type_ in content.schema.items()})
        return types

    def _repeated(self, name: str) -> bool:
        content, table = self._content(name), self._table(name)
        keys = [edge.key for edge in self.declaration.relationships if edge.one == name]
        if isinstance(table.policy, Diff):
            keys.append(table.policy.key)
        return any(len({*content.tuples(key)}) < len(content.rows) for key in keys)

    def _null(self, name: str, columns: str, rows: str) -> bool:
        found = self._content(name).tuples(columns.split(" or "))
        return sum(None in values for values in found) == int(rows)

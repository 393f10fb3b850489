"""Is a refusal true? Each sentence is held against what the rows and the server are."""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tableau_pipeline.core.declaration import TAG_PREFIX, Diff, Table
from tableau_pipeline.refresh.plan import Accept
from tableau_pipeline_tests.refresh.stateful.actors import Actor
from tableau_pipeline_tests.refresh.stateful.checks import observer, oracle
from tableau_pipeline_tests.refresh.stateful.journals import LATER_RELEASE
from tableau_pipeline_tests.refresh.stateful.models.tables import Content

# The server's own refusal, with the code of its error.
ANSWERED = re.compile(r" failed: \d{6} ")


def untrue(history: Any, actor: Actor, reason: str, *, tags: frozenset[str]) -> list[str]:
    """The sentences of a refusal that are not true; `tags` were there when the refresh began."""
    case = _Case(history, actor, tags)
    return [line for line in reason.splitlines() if not case.is_true(line)]


class _Case:
    def __init__(self, history: Any, actor: Actor, tags: frozenset[str]) -> None:
        self._history, self._actor, self._tags = history, actor, tags

    def is_true(self, line: str) -> bool:
        checks: list[tuple[str, Callable[..., bool]]] = [
            (r'Table "(\w+)": model "\w+" has ([\d,]+) rows, fewer than', self._too_few),
            (r'Table "(\w+)": model "\w+" has ([\d,]+) rows where ([\d,]+) are', self._shrunk),
            (r'Table "(\w+)": .* and how many are published is not known', self._no_counts),
            (r"The schema changed: (.+)\. on_schema_change", self._schema),
            (r'"[^"]+" must be overwritten, because', self._handled),
            (r'The metadata of "[^"]+" were changed .* a person', self._conflict),
            (r"A data source .* exists .* did not publish", self._handled),
            (r"is published by another deployment", self._others),
            (r"is published by another environment", lambda: bool(self._history.elsewhere)),
            (r'is published under the key "([^"]+)", by this deployment', self._another_key),
            (rf"release {LATER_RELEASE} of tableau_pipeline wrote it", self._later),
            (r"carries the tag of this data source .* no record of this deployment", self._stray),
            (
                r"is to be (?:renamed|moved) .* has a data source \"([^\"]+)\" already",
                self._in_the_way,
            ),
            (r"refresh: diff: table \"(\w+)\": .* is not unique", self._repeated),
            (
                r"(?:refresh|Relationship).*: table \"(\w+)\": (\w+(?: or \w+)*) is NULL in (\d+)",
                self._null,
            ),
            (r"Relationship .*: table \"(\w+)\": k is not unique", self._repeated),
            (r"cannot be read: ([^:]+?\.(?:parquet|json))\b", self._damaged),
            (r'Model "(\w+)": its partition', lambda name: bool(self._actor.contents[name].stale)),
            (r"Renaming or moving .* failed: 409015 ", self._taken),
            (ANSWERED.pattern, self._answered),
        ]
        for pattern, check in checks:
            if match := re.search(pattern, line):
                return check(*match.groups())
        return False

    def _content(self, name: str) -> Content:
        table = self._table(name)
        day = self._actor.day or self._history.today
        return oracle.kept(self._actor.contents[table.model], table.retain, day)

    def _table(self, name: str) -> Table:
        return next(table for table in self._actor.declaration.tables if table.name == name)

    def _count(self, text: str) -> int:
        return int(text.replace(",", ""))

    def _too_few(self, name: str, rows: str) -> bool:
        least = self._table(name).guard.min_rows
        return len(self._content(name).rows) == self._count(rows) < least

    def _shrunk(self, name: str, rows: str, before: str) -> bool:
        most = Fraction(str(self._table(name).guard.max_shrink))
        now, was = self._count(rows), self._count(before)
        known = self._history.ledger.counts.get(name, set())
        return len(self._content(name).rows) == now and was in known and was - now > was * most

    def _no_counts(self, name: str) -> bool:
        return self._takes_over() or observer.records_may_miss_rows(self._history)

    def _schema(self, phrases: str) -> bool:
        history, declaration = self._history, self._actor.declaration
        new = oracle.schema(declaration, self._actor.contents)
        return Accept.SCHEMA not in self._actor.options.accept and any(
            oracle.schema_refused(declaration.on_schema_change, new, old)
            for old in history.ledger.schemas
        )

    def _handled(self) -> bool:
        return self._takes_over() or observer.may_be_anothers(self._history)

    def _conflict(self) -> bool:
        is_refused = self._actor.declaration.metadata.on_conflict == "refuse"
        return is_refused and self._handled()

    def _takes_over(self) -> bool:
        """The records are those of the deployment that it is taken from."""
        return Accept.TAKEOVER in self._actor.options.accept

    def _others(self) -> bool:
        found = self._history.found()
        others = {"ours", "other"} - {self._actor.log.instance}
        return found is not None and any(
            f"tableau-pipeline-instance:{other}" in {*found.tags, *self._tags} for other in others
        )

    def _another_key(self, key: str) -> bool:
        found = self._history.found()
        tags = {*self._tags, *(found.tags if found else ())}
        return key != self._actor.log.key and f"{TAG_PREFIX}{key}" in tags

    def _later(self) -> bool:
        return self._actor.log.later_at is not None

    def _stray(self) -> bool:
        """Our records were lost, or name one that is gone, and what has our tag is elsewhere."""
        declared, found = self._actor.declaration, self._history.found()
        return found is not None and (found.name, found.project_name) != (
            declared.name,
            declared.project,
        )

    def _in_the_way(self, name: str) -> bool:
        """Another data source had the name when it looked; it may be gone since."""
        return self._actor.declaration.name.casefold() == name.casefold()

    def _taken(self) -> bool:
        """Another data source has the name, perhaps one of the other deployment."""
        name, moved = self._actor.declaration.name.casefold(), self._history.found()
        return any(
            each.name.casefold() == name and each != moved
            for each in self._history.tableau.datasources()
        )

    def _damaged(self, path: str) -> bool:
        """What is to be published cannot be read; what is published already need not be."""
        store = self._history.store
        new = self._actor.versions.items()
        return path in store.damaged and any(path in store.paths(*each) for each in new)

    def _answered(self) -> bool:
        return self._actor.had_fault or self._history.ledger.meddled_at > 0

    def _repeated(self, name: str) -> bool:
        content, table = self._content(name), self._table(name)
        keys = [edge.key for edge in self._actor.declaration.relationships if edge.one == name]
        if isinstance(table.policy, Diff):
            keys.append(table.policy.key)
        return any(len({*content.tuples(key)}) < len(content.rows) for key in keys)

    def _null(self, name: str, columns: str, rows: str) -> bool:
        found = self._content(name).tuples(columns.split(" or "))
        return sum(None in values for values in found) == self._count(rows)

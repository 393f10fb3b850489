"""Is a refusal true? Each sentence is held against what the rows and the server are."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tableau_pipeline.core.declaration import Diff, Table
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful.actors import LATER_RELEASE, Actor
from tableau_pipeline_tests.refresh.stateful.checks import observer, oracle
from tableau_pipeline_tests.refresh.stateful.models.tables import Content

# The server's own refusal, with the code of its error.
ANSWERED = re.compile(r" failed: \d{6} ")


def untrue(history: Any, actor: Actor, reason: str, *, tags: frozenset[str]) -> list[str]:
    """The sentences of a refusal that are not true; `tags` were there when the refresh began."""
    found = history.found()
    case = _Case(history, actor, {*tags, *(found.tags if found else ())})
    return [line for line in reason.splitlines() if not case.is_true(line)]


class _Case:
    def __init__(self, history: Any, actor: Actor, tags: set[str]) -> None:
        self._history, self._actor, self._declared = history, actor, actor.declaration
        self._tags, self._found, self._log = tags, history.found(), actor.log

    def is_true(self, line: str) -> bool:
        for pattern, check in self._checks().items():
            if match := re.search(pattern, line):
                return bool(check(*match.groups()))
        return False

    def _checks(self) -> Mapping[str, Callable[..., object]]:
        return {
            r'Table "(\w+)": model "\w+" has ([\d,]+) rows, fewer than': self._too_few,
            r'Table "(\w+)": model "\w+" has ([\d,]+) rows where ([\d,]+) are': self._shrunk,
            r'Table "(\w+)": .* and how many are published is not known': lambda _: (
                self._takes_over or observer.records_may_miss_rows(self._history, self._log)
            ),
            r"The schema changed: (.+)\. on_schema_change": self._schema,
            r'"[^"]+" must be overwritten, because': lambda: self._may_be_anothers,
            r'The metadata of "[^"]+" were changed .* a person|, and the server has .* Nothing was '
            "sent": lambda: (
                self._declared.metadata.on_conflict == "refuse" and self._may_be_anothers
            ),
            "cannot be published alone: the rows": lambda: self._actor.options.metadata_only,
            r'"t1\.(\w+)" is neither a column nor': lambda e: e not in self._content("t1").schema,
            r"The format of (?:(\w+)\.)?(\w+): '\S+' is a number format": self._no_number,
            r"A data source .* exists .* did not publish": lambda: self._may_be_anothers,
            r"is published by another deployment": lambda: any(
                f"{INSTANCE_TAG_PREFIX}{other}" in self._tags
                for other in {"ours", "other"} - {self._log.instance}
            ),
            r"is published by another environment": lambda: self._history.elsewhere,
            r'is published under the key "([^"]+)", by this deployment': lambda key: (
                key != self._log.key and f"{TAG_PREFIX}{key}" in self._tags
            ),
            rf"release {LATER_RELEASE} of tableau_pipeline wrote it": lambda: self._log.later_at,
            # Our records were lost, or name one that is gone, and what has our tag is elsewhere.
            r"carries the tag of this data source .* no record of this deployment": lambda: (
                self._found
                and (self._found.name, self._found.project_name)
                != (self._declared.name, self._declared.project)
            ),
            # Another data source had the name when it looked; it may be gone since.
            r"is to be (?:renamed|moved) .* has a data source \"([^\"]+)\" already": lambda name: (
                self._declared.name.casefold() == name.casefold()
            ),
            r"refresh: diff: table \"(\w+)\": .* is not unique": self._repeated,
            r"(?:refresh|Relationship).*: table \"(\w+)\": (\w+(?: or \w+)*) is NULL in (\d+)": (
                self._null
            ),
            r"Relationship .*: table \"(\w+)\": k is not unique": self._repeated,
            r"cannot be read: ([^:]+?\.(?:parquet|json))\b": self._damaged,
            r"Relationship .*: table \"(\w+)\" has no column \"(\w+)\"": lambda name, column: (
                column not in self._content(name).schema
            ),
            r'Model "(\w+)": its partition': lambda name: self._actor.contents[name].stale,
            r"Renaming or moving .* failed: 409015 ": self._taken,
            ANSWERED.pattern: lambda: self._actor.had_fault or self._history.ledger.meddled_at,
        }

    @property
    def _takes_over(self) -> bool:
        """The records are those of the deployment that it is taken from."""
        return Accept.TAKEOVER in self._actor.options.accept

    @property
    def _may_be_anothers(self) -> bool:
        return self._takes_over or observer.may_be_anothers(self._history, self._log)

    def _table(self, name: str) -> Table:
        return next(table for table in self._declared.tables if table.name == name)

    def _content(self, name: str) -> Content:
        table, day = self._table(name), self._actor.day or self._history.today
        return oracle.kept(self._actor.contents[table.model], table.retain, day)

    def _too_few(self, name: str, rows: str) -> bool:
        return len(self._content(name).rows) == _count(rows) < self._table(name).guard.min_rows

    def _shrunk(self, name: str, rows: str, before: str) -> bool:
        now, was = _count(rows), _count(before)
        known = self._history.ledger.counts.get(name, set())
        is_broken = oracle.lost_too_many(self._table(name).guard, now, was)
        return len(self._content(name).rows) == now and was in known and is_broken

    def _schema(self, _: str) -> bool:
        new = oracle.schema(self._declared, self._actor.contents)
        return Accept.SCHEMA not in self._actor.options.accept and any(
            oracle.schema_refused(self._declared.on_schema_change, new, old)
            for old in self._history.ledger.schemas
        )

    def _no_number(self, name: str | None, column: str) -> bool:
        """A model whose table has no name of its own in the file is the only one."""
        content = self._content(name or self._declared.fact_table)
        return content.schema[column] not in oracle.NUMBERS

    def _taken(self) -> bool:
        """Another data source has the name, perhaps one of the other deployment."""
        name = self._declared.name.casefold()
        return any(
            each.name.casefold() == name and each != self._found
            for each in self._history.tableau.datasources()
        )

    def _damaged(self, path: str) -> bool:
        """What is to be published cannot be read; what is published already need not be."""
        store, new = self._history.store, self._actor.versions.items()
        return path in store.damaged and any(path in store.paths(*each) for each in new)

    def _repeated(self, name: str) -> bool:
        content, table = self._content(name), self._table(name)
        keys = [edge.key for edge in self._declared.relationships if edge.one == name]
        if isinstance(table.policy, Diff):
            keys.append(table.policy.key)
        return any(len({*content.tuples(key)}) < len(content.rows) for key in keys)

    def _null(self, name: str, columns: str, rows: str) -> bool:
        found = self._content(name).tuples(columns.split(" or "))
        return sum(None in values for values in found) == _count(rows)


def _count(text: str) -> int:
    return int(text.replace(",", ""))

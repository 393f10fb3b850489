"""The check of refusals: each sentence of a refusal must be true."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful.checks import expected, visibility
from tableau_pipeline_tests.refresh.stateful.journals import LATER_RELEASE
from tableau_pipeline_tests.refresh.stateful.models.tables import Content
from tableau_pipeline_tests.refresh.stateful.refreshes import Refresh

# A refusal by the server, with the code of its error.
ANSWERED = re.compile(r" failed: \d{6} ")


def untrue_lines(history: Any, refresh: Refresh, reason: str, *, tags: frozenset[str]) -> list[str]:
    """The sentences of a refusal that are not true.

    Args:
        tags: the tags of the data source when the refresh began.
    """
    datasource = history.data_source()
    refusal = _Refusal(history, refresh, {*tags, *(datasource.tags if datasource else ())})
    return [line for line in reason.splitlines() if not refusal.is_true(line)]


class _Refusal:
    """The facts with which the check compares the sentences of a refusal."""

    def __init__(self, history: Any, refresh: Refresh, tags: set[str]) -> None:
        self._history, self._refresh, self._declaration = history, refresh, refresh.declaration
        self._tags, self._datasource, self._journal = tags, history.data_source(), refresh.journal

    def is_true(self, line: str) -> bool:
        """Whether a sentence is true. A sentence that no check knows counts as untrue."""
        for pattern, check in self._checks().items():
            if match := re.search(pattern, line):
                return bool(check(*match.groups()))
        return False

    def _checks(self) -> Mapping[str, Callable[..., object]]:
        return {
            **self._checks_of_guards(),
            r"The schema changed: (.+)\. on_schema_change": self._schema,
            r'"[^"]+" must be overwritten, because': lambda: self._may_have_edits,
            "Removing .+ also removes what people made of it: ": lambda: self._may_have_edits,
            r'The metadata of "[^"]+" were changed .* a person|, and the server has .* Nothing was '
            "sent": lambda: (
                self._declaration.metadata.on_conflict == "refuse" and self._may_have_edits
            ),
            "is not as it was planned at|does not cover this refresh": lambda: True,
            r'cannot be refreshed as planned: the rows of table "(\w+)"': self._is_collected,
            "cannot be published alone: the rows": lambda: self._refresh.options.metadata_only,
            r'cannot go back to version (\d+): the rows of table "(\w+)"': self._is_gone,
            r'"t1\.(\w+)" is neither a column nor': lambda c: c not in self._content("t1").schema,
            r"The format of (?:(\w+)\.)?(\w+): '\S+' is a number format": self._no_number,
            r"A data source .* exists .* did not publish": lambda: self._may_have_edits,
            r"is published by another deployment": self._has_another_deployment,
            "is published by another environment": lambda: self._history.luids_elsewhere,
            r'is published under the key "([^"]+)", by this deployment': lambda key: (
                key != self._journal.key and f"{TAG_PREFIX}{key}" in self._all_tags
            ),
            rf"release {LATER_RELEASE} of tableau_pipeline wrote it": self._later_release,
            # No record names the data source. It has our tag, but is not at the declared place.
            r"carries the tag of this data source .* no record of this deployment": lambda: (
                self._datasource
                and (self._datasource.name, self._datasource.project_name)
                != (self._declaration.name, self._declaration.project)
            ),
            # Another data source had the name at that time, and may be gone now.
            r"is to be (?:renamed|moved) .* has a data source \"([^\"]+)\" already": lambda name: (
                self._declaration.name.casefold() == name.casefold()
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
            r'Model "(\w+)": its partition': lambda name: self._refresh.contents[name].stale,
            r"Renaming or moving .* failed: 409015 ": self._taken,
            r" failed: 403007 .* already exists": self._not_found,
            ANSWERED.pattern: self._disturbed,
        }

    def _checks_of_guards(self) -> Mapping[str, Callable[..., object]]:
        return {
            r'Table "(\w+)": model "\w+" has ([\d,]+) rows, fewer than': self._too_few,
            r'Table "(\w+)": model "\w+" has ([\d,]+) rows where ([\d,]+) are': self._shrunk,
            r'Table "(\w+)": .* and how many are published is not known': lambda _: (
                self._takes_over or visibility.records_may_miss_rows(self._history, self._journal)
            ),
            "had .*, and that (?:is no longer in it|was deleted with it)": self._is_filter_gone,
            "must be published in full, and that would lose": lambda: self._has_filter,
            "had .*, and it is not known whether a publish would keep that": lambda: (
                self._journal.filters
            ),
            r'Table "(\w+)": ([\d,]+) of ([\d,]+) rows would come': self._changed,
            r'Table "(\w+)": how many of its rows would change is not known': (
                self._changes_not_known
            ),
        }

    @property
    def _all_tags(self) -> set[str]:
        """The tags of all data sources: our records may name one that has another name by now."""
        there = (datasource.tags for datasource in self._history.tableau.datasources())
        return self._tags.union(*there)

    @property
    def _takes_over(self) -> bool:
        """Whether the refresh takes over, and so may lack the records of another deployment."""
        return Accept.TAKEOVER in self._refresh.options.accept

    @property
    def _may_have_edits(self) -> bool:
        return self._takes_over or visibility.users_may_have_edited(self._history, self._journal)

    def _table(self, name: str) -> Table:
        return next(table for table in self._declaration.tables if table.name == name)

    def _content(self, name: str) -> Content:
        """The rows of a table, within its rolling window."""
        table, day = self._table(name), self._refresh.day or self._history.today
        return expected.within_window(self._refresh.contents[table.model], table.retain, day)

    def _too_few(self, name: str, rows: str) -> bool:
        return len(self._content(name).rows) == _count(rows) < self._table(name).guard.min_rows

    def _shrunk(self, name: str, rows: str, before: str) -> bool:
        now, was = _count(rows), _count(before)
        counts = self._history.requests.row_counts.get(name, set())
        is_broken = expected.lost_too_many(self._table(name).guard, now, was)
        return len(self._content(name).rows) == now and was in counts and is_broken

    def _changed(self, name: str, changed: str, published: str) -> bool:
        limit, rows = self._table(name).guard.max_change, _count(published)
        counts = self._history.requests.row_counts.get(name, set())
        is_accepted = Accept.CHANGE in self._refresh.options.accept
        is_possible = rows in counts and _count(changed) <= rows + len(self._content(name).rows)
        return is_possible and not is_accepted and _count(changed) > (limit or 0) * rows

    def _changes_not_known(self, name: str) -> bool:
        """Whether records of the published rows may be gone, or the rows are not stored."""
        records = self._journal.history().recovered.record
        published = records.tables.get(name) if records else None
        return (
            self._table(name).guard.max_change is not None
            and Accept.CHANGE not in self._refresh.options.accept
            and (
                self._takes_over
                or visibility.records_may_miss_rows(self._history, self._journal)
                or published is None
                or self._is_lost(published)
            )
        )

    @property
    def _has_filter(self) -> bool:
        metadata = self._history.metadata_of(self._datasource) if self._datasource else {}
        return any(item[0] == "filter" for item in metadata)

    def _is_filter_gone(self) -> bool:
        metadata = self._history.metadata_of(self._datasource) if self._datasource else {}
        # A killed refresh may have recorded a user's filter that `filters` lacks.
        made = {item for _, item in self._history.requests.set_by_users if item[0] == "filter"}
        return self._takes_over or not made | self._journal.filters <= metadata.keys()

    def _schema(self, _: str) -> bool:
        new = expected.schema(self._declaration, self._refresh.contents)
        return Accept.SCHEMA not in self._refresh.options.accept and any(
            expected.schema_refused(self._declaration.on_schema_change, new, old)
            for old in self._history.requests.schemas
        )

    def _no_number(self, name: str | None, column: str) -> bool:
        """Whether a column has no numbers. Without `name`, it is a column of the fact table."""
        content = self._content(name or self._declaration.fact_table)
        return content.schema[column] not in expected.NUMBERS

    def _taken(self) -> bool:
        """Whether another data source has the declared name, perhaps in the other deployment."""
        name = self._declaration.name.casefold()
        return any(
            other.name.casefold() == name and other != self._datasource
            for other in self._history.tableau.datasources()
        )

    def _damaged(self, path: str) -> bool:
        """Whether a damaged file belongs to a version that the refresh publishes."""
        store, new = self._history.store, self._refresh.versions.items()
        return path in store.damaged and any(path in store.paths(*version) for version in new)

    def _has_another_deployment(self) -> bool:
        others = {"ours", "other"} - {self._journal.instance}
        return any(f"{INSTANCE_TAG_PREFIX}{other}" in self._tags for other in others)

    def _is_gone(self, version: str, table: str) -> bool:
        """Whether the rows of a table at a version are no longer stored."""
        checkpoints = self._journal.as_seen_by(self._refresh.owner).checkpoints()
        found = next((c.tables[table] for c in checkpoints if c.refresh == int(version)), None)
        # In some scenarios, the journal keeps only a few records, so the version has no record.
        return found is None or self._is_lost(found)

    def _is_collected(self, table: str) -> bool:
        """Whether the planned rows of a table are no longer stored."""
        saved = self._refresh.options.saved
        planned = saved.tables.get(table) if saved else None
        return not planned or self._is_lost(planned)

    def _is_lost(self, table: TableContent) -> bool:
        """Whether a version was removed, or one of its files was removed or damaged."""
        try:
            snapshot = self._history.store.version(table.model, table.version)
        except DamagedSnapshotError:
            return True
        paths = self._history.store.paths(table.model, table.version)
        is_damaged = not self._history.store.damaged.isdisjoint(paths)
        return snapshot is None or is_damaged or bool(snapshot.missing())

    def _later_release(self) -> bool:
        return self._journal.later_at is not None

    def _disturbed(self) -> bool:
        """Whether a fault of the network or another user may be why the server refused."""
        return self._refresh.had_fault or self._history.requests.users_acted_at > 0

    def _not_found(self) -> bool:
        """Whether the refresh may have missed a data source because the server lists it late."""
        return self._disturbed() or self._history.scenario.quirks["index_lag_seconds"] > 0

    def _repeated(self, name: str) -> bool:
        content, table = self._content(name), self._table(name)
        keys = [edge.key for edge in self._declaration.relationships if edge.one == name]
        if isinstance(table.policy, Diff):
            keys.append(table.policy.key)
        return any(len({*content.tuples(key)}) < len(content.rows) for key in keys)

    def _null(self, name: str, columns: str, rows: str) -> bool:
        tuples = self._content(name).tuples(columns.split(" or "))
        return sum(None in values for values in tuples) == _count(rows)


def _count(text: str) -> int:
    return int(text.replace(",", ""))

"""Find the published rows that differ from the rows of the models, and the columns that differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tableauhyperapi import Connection, HyperException, TableName, escape_name

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.affected_rows import NotProvedError, in_slices
from tableau_pipeline.extracts.content import table_source
from tableau_pipeline.extracts.schema import layout_changes
from tableau_pipeline.hyper.build import rows_in
from tableau_pipeline.hyper.hyper_file import table_columns
from tableau_pipeline.hyper.parquet import TableSource, row_text, select_sql
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.hyper.types import ROW_HASH, Column, hyper_type
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.packages import published_file
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.setup import Setup, newest_models

# A column name that no model can use. When rows are compared by key, the column shows which sides
# (published, model) have the row. When whole rows are compared, the column has the hash of the row.
_IS_THERE = _HASH = escape_name(ROW_HASH)


@dataclass(frozen=True, slots=True)
class Differences:
    """How the published rows of a table compare with the rows of its model.

    Attributes:
        key: the columns by which published rows were paired with rows of the model; () if whole
            rows were compared.
        both: the number of rows that are both published and in the model. By key, these are the
            pairs of rows with equal keys; without a key, the rows with equal values.
        equal: the number of rows in `both` whose values are all equal.
        columns: for each column outside the key, the number of pairs that differ in it; {} if whole
            rows were compared.
        samples: for each column, some of the pairs that differ in it. A sample has the key, the
            published value and the value of the model.
    """

    key: tuple[str, ...]
    only_published: int
    only_model: int
    both: int
    equal: int
    columns: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, Sequence[Sequence[object]]] = field(default_factory=dict)

    @property
    def is_equal(self) -> bool:
        """Whether no row differs."""
        return not self.only_published and not self.only_model and self.equal == self.both

    @property
    def percent_equal(self) -> Mapping[str, float]:
        """The percentage of equal pairs for each column; below 100 if any pair differs."""
        shares = {name: 1 - count / self.both for name, count in self.columns.items() if self.both}
        return {
            name: 100.0 if share == 1 else min(99.99, round(100 * share, 2))
            for name, share in shares.items()
        }


def table_differences(
    hyper: Hyperd,
    file: Path,
    published: TableName,
    model: TableSource,
    *,
    key: Sequence[str],
    samples: int,
    progress: Callable[[float], None],
) -> Differences:
    """Compare the rows of a published table with the rows of its model.

    The comparison includes only columns that both sides have with the same type.

    Args:
        key: the columns that identify a row; () to compare whole rows. Whole rows are also compared
            if a key repeats on either side, or if a column of the key is missing on one side or has
            different types.
        samples: how many differing rows to return for each column that differs.
        progress: a function to call with the finished share, from 0 to 1.

    Raises:
        NotProvedError: hyperd does not have enough memory for the comparison.
    """
    types = table_columns(hyper, file).get(published)
    columns = [
        column
        for column in model.columns
        if types and types.get(column.name) == hyper_type(column, table="")
    ]
    has_key = {column.name for column in columns}.issuperset(key)
    with connect(hyper, file) as connection:
        sides = _Sides(connection, published, model, columns, tuple(key) if has_key else ())
        rows = (
            rows_in(connection, published) if types is not None else 0,
            rows_in(connection, f"{select_sql(model)} source"),
        )
        if not columns:
            return Differences((), *rows, 0, 0)
        differences, slices = sides.compared(rows, hyper.memory, progress)
        if rows != (
            differences.only_published + differences.both,
            differences.only_model + differences.both,
        ):
            sides = replace(sides, key=())
            differences, slices = sides.compared(rows, hyper.memory, progress)
        differing = [name for name, count in differences.columns.items() if count and samples]
        shown = {name: sides.sample(name, samples, slices) for name in differing}
    return replace(differences, samples=shown)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The published rows and the rows of the model, to be compared in `columns`.

    Rows with equal `key` are compared. If `key` is (), whole rows are compared.
    """

    connection: Connection
    published: TableName
    model: TableSource
    columns: Sequence[Column]
    key: tuple[str, ...]

    @property
    def _relations(self) -> tuple[str, str]:
        return str(self.published), select_sql(self.model)

    @property
    def _other_columns(self) -> list[str]:
        return [column.name for column in self.columns if column.name not in self.key]

    def compared(
        self, rows: tuple[int, int], memory: int, progress: Callable[[float], None]
    ) -> tuple[Differences, int]:
        """Compare in slices, as few as memory allows; return differences and number of slices."""
        count = self._by_key if self.key else self._by_whole_rows

        def compare(slices: int) -> tuple[list[list[int]], int]:
            counts_by_slice = []
            for number in range(slices):
                progress(number / slices)
                (counts,) = self.connection.execute_list_query(
                    count(self._slice_condition(number, slices))
                )
                # SQL sums over no rows are NULL: count them as 0.
                counts_by_slice.append([int(str(value or 0)) for value in counts])
            return counts_by_slice, slices

        # Whole rows are joined only on their hash, so the join keeps no columns in memory.
        width = len(self.columns) if self.key else 0
        counts_by_slice, slices = in_slices(compare, rows=max(rows), columns=width, memory=memory)
        only_published, only_model, both, equal, *differing = map(
            sum, zip(*counts_by_slice, strict=True)
        )
        columns = dict(zip(self._other_columns, differing, strict=True)) if self.key else {}
        return Differences(self.key, only_published, only_model, both, equal, columns), slices

    def _slice_condition(self, number: int, slices: int) -> str:
        """Return an SQL condition that selects the same slice of the rows on both sides."""
        text = row_text([column for column in self.columns if column.name in self.key])
        hash_ = f"sha256({text})" if self.key else _HASH
        return f"(get_byte({hash_}, 0) & {slices - 1}) = {number}" if slices > 1 else "TRUE"

    def _by_key(self, where: str) -> str:
        """Return SQL for the counts of `Differences` by key, and for the count of each column."""
        names = [escape_name(name) for name in self._other_columns]
        is_pair = f"p.{_IS_THERE} = m.{_IS_THERE}"
        differs = [f"p.{name} IS DISTINCT FROM m.{name}" for name in names]
        cases = [
            f"m.{_IS_THERE} IS NULL",
            f"p.{_IS_THERE} IS NULL",
            is_pair,
            f"{is_pair} AND NOT ({' OR '.join(differs) or 'FALSE'})",
            *(f"{is_pair} AND {difference}" for difference in differs),
        ]
        counts = ", ".join(f"SUM(CASE WHEN {case} THEN 1 ELSE 0 END)" for case in cases)
        return f"SELECT {counts} FROM {self._joined('FULL', names, where)}"  # noqa: S608

    def _joined(self, kind: str, names: Sequence[str], where: str) -> str:
        key = [escape_name(name) for name in self.key]
        chosen = ", ".join([*key, *names, f"1 AS {_IS_THERE}"])
        published, model = (
            f"(SELECT {chosen} FROM {side} source WHERE {where})"  # noqa: S608
            for side in self._relations
        )
        on = " AND ".join(f"p.{name} = m.{name}" for name in key)
        return f"{published} p {kind} JOIN {model} m ON {on}"

    def _by_whole_rows(self, where: str) -> str:
        """Return SQL for the counts of `Differences` by whole rows; a row may repeat."""
        published, model = (
            f"(SELECT {_HASH}, COUNT(*) AS n FROM (SELECT sha256({row_text(self.columns)}) "  # noqa: S608
            f"AS {_HASH} FROM {side} source) hashed WHERE {where} GROUP BY {_HASH})"
            for side in self._relations
        )
        p, m = "COALESCE(p.n, 0)", "COALESCE(m.n, 0)"
        both = f"SUM(CASE WHEN {p} < {m} THEN {p} ELSE {m} END)"
        return (
            f"SELECT SUM({p}) - {both}, SUM({m}) - {both}, {both}, {both} "  # noqa: S608
            f"FROM {published} p FULL JOIN {model} m ON p.{_HASH} = m.{_HASH}"
        )

    def sample(self, column: str, samples: int, slices: int) -> list[list[object]]:
        """Return some rows that differ in a column: their keys, and the values of both sides."""
        name, rows = escape_name(column), []
        key = ", ".join(f"p.{escape_name(key_column)}" for key_column in self.key)
        for number in range(slices):
            joined = self._joined("INNER", [name], self._slice_condition(number, slices))
            rows += self.connection.execute_list_query(
                f"SELECT {key}, p.{name}, m.{name} FROM {joined} "  # noqa: S608
                f"WHERE p.{name} IS DISTINCT FROM m.{name} ORDER BY {key} "
                f"LIMIT {samples - len(rows)}"
            )
            if len(rows) == samples:
                break
        return rows


def diff(
    setup: Setup, server: TableauSite, *, samples: int, tell: Callable[..., None]
) -> tuple[list[str], dict[str, Differences]]:
    """Download a data source, and compare each of its tables with the newest version of its model.

    Args:
        samples: how many differing rows to return for each column that differs.
        tell: a function to call with the current step in words, and with the finished share if it
            is known.

    Returns:
        Phrases for how the tables and columns differ. And for each table, how its rows differ in
        the columns that both sides have.

    Raises:
        RefreshError: there is nothing to compare, or one side cannot be read.
    """
    declaration, name = setup.declaration, setup.declaration.name
    record, rows = setup.journal.history().checkpoint, {}
    remote = _find_published(setup, server, record)
    try:
        with newest_models(setup) as builder:
            desired = builder.desired(record)
            tell(f"Downloading {name}" + (f", {size} MB" if (size := remote.megabytes) else ""))
            with published_file(server, remote) as file:
                hyper = setup.hyper()
                types = table_columns(hyper, file)
                places = {
                    table.name: _table_in_file(declaration.target(table.name), [*types])
                    for table in declaration.tables
                }
                for table in declaration.tables:
                    model = builder.models[table.model]
                    rows[table.name] = table_differences(
                        hyper,
                        file,
                        places[table.name],
                        table_source(table.name, model, desired[table.name].cutoff),
                        key=table.policy.key if isinstance(table.policy, Diff) else (),
                        samples=samples,
                        progress=partial(tell, f"Comparing {table.name}"),
                    )
            names = {place: declaration.published_name(table) for table, place in places.items()}
            existing = {names.get(place, place.name.unescaped): types[place] for place in types}
            columns = {table: content.columns for table, content in desired.items()}
            return layout_changes(existing, declaration, columns), rows
    except (HyperException, NotProvedError, ValueError) as error:
        raise RefreshError(f"{name} cannot be compared: {error}") from error


def _find_published(
    setup: Setup, server: TableauSite, record: Checkpoint | None
) -> RemoteDatasource:
    """Return the data source in our records; without a record, find it by name and project."""
    declaration = setup.declaration
    if record and record.luid:
        remote, reason = server.find_by_luid(record.luid), "it is no longer on the server"
    else:
        project = server.find_project(declaration.project)
        remote = server.find_by_name(declaration.name, project_id=project) if project else None
        reason = f'the project "{declaration.project_path}" has no data source of this name'
    if remote is None:
        raise RefusedError(
            f"There is nothing of {declaration.name} to compare: {reason}. Run its refresh",
            code=Code.NOT_PUBLISHED,
        )
    return remote


def _table_in_file(target: TableName, existing: Sequence[TableName]) -> TableName:
    """Return the name that a table has in the published file.

    Files of other publishers have other schemas, such as "public". So if the file lacks the full
    name, look for the table in every schema, and otherwise take the only table of the file.
    """
    named = [table for table in existing if table.name == target.name]
    if target in existing or not existing:
        return target
    if len(named) == 1:
        return named[0]
    return existing[0] if len(existing) == 1 else target

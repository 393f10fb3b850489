"""In what the published rows differ from those of the models, by key and by column."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tableauhyperapi import Connection, HyperException, TableName, escape_name

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Diff
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.affected import NotProvedError, in_slices
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

# The only name that no column of a model can have.
_IS_THERE = _HASH = escape_name(ROW_HASH)


@dataclass(frozen=True, slots=True)
class Differences:
    """How the published rows of a table compare with those of its model.

    Attributes:
        key: the columns by which rows were paired; () if whole rows were compared.
        both: rows on both sides, with equal keys; of whole rows, with equal values.
        equal: those of them whose values are all equal.
        columns: of these pairs, how many differ in each column beside the key.
        samples: the key, the published and the model's value of some of them, by column.
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
        """The share of pairs with equal values, by column; below 100 if any differs."""
        shares = {name: 1 - count / self.both for name, count in self.columns.items() if self.both}
        return {n: 100.0 if s == 1 else min(99.99, round(100 * s, 2)) for n, s in shares.items()}


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
    """Compare the rows of a table of a published file with those of its model.

    Only the columns that both sides have in the same type are compared.

    Args:
        key: identifies the rows of both; () if nothing does. If it repeats on either side, or one
            side lacks it, whole rows are compared.
        samples: how many rows to show of each column that differs.
        progress: is told the share that is done.

    Raises:
        NotProvedError: hyperd's memory is not enough.
    """
    types = table_columns(hyper, file).get(published)
    columns = [e for e in model.columns if types and types.get(e.name) == hyper_type(e, table="")]
    has_key = {each.name for each in columns}.issuperset(key)
    with connect(hyper, file) as connection:
        sides = _Sides(connection, published, model, columns, tuple(key) if has_key else ())
        rows = (
            rows_in(connection, published) if types is not None else 0,
            rows_in(connection, f"{select_sql(model)} source"),
        )
        if not columns:
            return Differences((), *rows, 0, 0)
        found, slices = sides.compared(rows, hyper.memory, progress)
        if rows != (found.only_published + found.both, found.only_model + found.both):
            sides = replace(sides, key=())
            found, slices = sides.compared(rows, hyper.memory, progress)
        differing = [name for name, count in found.columns.items() if count and samples]
        shown = {name: sides.sample(name, samples, slices) for name in differing}
    return replace(found, samples=shown)


@dataclass(frozen=True, slots=True)
class _Sides:
    """Two relations, whose rows are compared in these columns by this key, or as a whole."""

    connection: Connection
    published: TableName
    model: TableSource
    columns: Sequence[Column]
    key: tuple[str, ...]

    @property
    def _relations(self) -> tuple[str, str]:
        return str(self.published), select_sql(self.model)

    @property
    def _others(self) -> list[str]:
        return [each.name for each in self.columns if each.name not in self.key]

    def compared(
        self, rows: tuple[int, int], memory: int, progress: Callable[[float], None]
    ) -> tuple[Differences, int]:
        """Compare in as few slices as the memory allows; return their number, too."""
        count = self._by_key if self.key else self._whole

        def compare(slices: int) -> tuple[list[list[int]], int]:
            found = []
            for number in range(slices):
                progress(number / slices)
                (counts,) = self.connection.execute_list_query(count(self._slice(number, slices)))
                # The sum over no rows is NULL.
                found.append([int(str(each or 0)) for each in counts])
            return found, slices

        # Whole rows are joined on their hash alone.
        width = len(self.columns) if self.key else 0
        found, slices = in_slices(compare, rows=max(rows), columns=width, memory=memory)
        only_published, only_model, both, equal, *differing = map(sum, zip(*found, strict=True))
        columns = dict(zip(self._others, differing, strict=True)) if self.key else {}
        return Differences(self.key, only_published, only_model, both, equal, columns), slices

    def _slice(self, number: int, slices: int) -> str:
        """Return a condition that is true for a part of the rows, the same on both sides."""
        text = row_text([each for each in self.columns if each.name in self.key])
        hash_ = f"sha256({text})" if self.key else _HASH
        return f"(get_byte({hash_}, 0) & {slices - 1}) = {number}" if slices > 1 else "TRUE"

    def _by_key(self, where: str) -> str:
        """Return SQL for the fields of the differences, and for the count of each column."""
        names = [escape_name(name) for name in self._others]
        is_pair = f"p.{_IS_THERE} = m.{_IS_THERE}"
        differs = [f"p.{name} IS DISTINCT FROM m.{name}" for name in names]
        cases = [
            f"m.{_IS_THERE} IS NULL",
            f"p.{_IS_THERE} IS NULL",
            is_pair,
            f"{is_pair} AND NOT ({' OR '.join(differs) or 'FALSE'})",
            *(f"{is_pair} AND {each}" for each in differs),
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

    def _whole(self, where: str) -> str:
        """Return SQL for the fields of the differences; a row may be there several times."""
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
        """Return the key and both values of some rows that differ in a column."""
        name, found = escape_name(column), []
        key = ", ".join(f"p.{escape_name(each)}" for each in self.key)
        for number in range(slices):
            joined = self._joined("INNER", [name], self._slice(number, slices))
            found += self.connection.execute_list_query(
                f"SELECT {key}, p.{name}, m.{name} FROM {joined} "  # noqa: S608
                f"WHERE p.{name} IS DISTINCT FROM m.{name} ORDER BY {key} "
                f"LIMIT {samples - len(found)}"
            )
            if len(found) == samples:
                break
        return found


def diff(
    setup: Setup, server: TableauSite, *, samples: int, tell: Callable[..., None]
) -> tuple[list[str], dict[str, Differences]]:
    """Download a data source, and compare each of its tables with the newest version of its model.

    Args:
        samples: how many rows to show of each column that differs.
        tell: is told what is done, and its share if that is known.

    Returns:
        in what tables and columns differ, as phrases; and by table, how the rows differ, of the
        columns that both sides have.

    Raises:
        RefreshError: there is nothing to compare, or it cannot be read.
    """
    declaration, name = setup.declaration, setup.declaration.name
    record, rows = read_history(setup.journal.records()).checkpoint, {}
    remote = _published(setup, server, record)
    try:
        with newest_models(setup) as builder:
            desired = builder.desired(record)
            tell(f"Downloading {name}" + (f", {each} MB" if (each := remote.megabytes) else ""))
            with published_file(server, remote) as file:
                hyper = setup.hyper()
                types = table_columns(hyper, file)
                places = {
                    table.name: _place(declaration.target(table.name), [*types])
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
            names = {place: declaration.published_name(each) for each, place in places.items()}
            found = {names.get(each, each.name.unescaped): types[each] for each in types}
            columns = {name: each.columns for name, each in desired.items()}
            return layout_changes(found, declaration, columns), rows
    except (HyperException, NotProvedError, ValueError) as error:
        raise RefreshError(f"{name} cannot be compared: {error}") from error


def _published(setup: Setup, server: TableauSite, record: Checkpoint | None) -> RemoteDatasource:
    """The data source: that of our records, or one of others that a refresh would take over."""
    declaration = setup.declaration
    if record and record.luid:
        remote, why = server.find_by_luid(record.luid), "it is no longer on the server"
    else:
        project = server.find_project(declaration.project)
        remote = server.find_by_name(declaration.name, project_id=project) if project else None
        why = f'the project "{declaration.project_path}" has no data source of this name'
    if remote is None:
        raise RefusedError(
            f"There is nothing of {declaration.name} to compare: {why}. Run its refresh",
            code=Code.NOT_PUBLISHED,
        )
    return remote


def _place(target: TableName, found: Sequence[TableName]) -> TableName:
    """Where a table is in the published file: others use other schemas, such as "public"."""
    named = [each for each in found if each.name == target.name]
    if target in found or not found:
        return target
    if len(named) == 1:
        return named[0]
    return found[0] if len(found) == 1 else target

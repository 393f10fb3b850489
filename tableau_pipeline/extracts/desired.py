"""What is desired: the rows of models that `retain` keeps, and the metadata that are declared."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from tableauhyperapi import Connection, HyperProcess, escape_name

from tableau_pipeline.core.checkpoint import Checkpoint, Cutoff, TableContent
from tableau_pipeline.core.declaration import Append, Declaration, Diff, Retain, Table
from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Snapshot
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.build import rows_in
from tableau_pipeline.hyper.parquet import Layout, TableSource, select_sql
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.types import ROW_HASH, Column, hyper_type, string_literal
from tableau_pipeline.metadata.columns import Tables, datatype_of
from tableau_pipeline.metadata.document import Metadata, read_metadata
from tableau_pipeline.metadata.fields import FieldMetadata, Inherited
from tableau_pipeline.metadata.formats import misfit
from tableau_pipeline.metadata.merge import (
    CERTIFIED,
    MARKS,
    Merge,
    Path,
    Policy,
    Values,
    Written,
    is_about,
    merge,
    quoted,
    shown,
)
from tableau_pipeline.metadata.tds import Tds, merged_into

# The version of each model that a refresh publishes, by its asset key.
Models = Mapping[str, Snapshot]


def table_source(
    name: str,
    snapshot: Snapshot,
    cutoff: Cutoff | None = None,
    *,
    hashed: bool = False,
    only: Collection[str] | None = None,
    files: Iterable[DataFile] | None = None,
) -> TableSource:
    """Return the rows of a snapshot that a cutoff keeps.

    Args:
        hashed: include the hash of each row.
        only: the columns to include; None for all.
        files: the files to read, of those of the snapshot; None for all.
    """
    columns = tuple(each for each in snapshot.columns if only is None or each.name in only)
    files = snapshot.files if files is None else tuple(files)
    layouts: dict[Layout, list[str]] = {}
    for file in files:
        if file.layout:
            layouts.setdefault(file.layout, []).append(file.name)
    return TableSource(
        name=name,
        columns=(*columns, Column(ROW_HASH, "bigint")) if hashed else columns,
        files=tuple(file.name for file in files),
        layouts={layout: tuple(names) for layout, names in layouts.items()},
        where=kept(columns, cutoff) if cutoff else None,
        comments=snapshot.comments,
        folder=snapshot.folder,
    )


def kept(columns: Sequence[Column], cutoff: Cutoff) -> str:
    """Return SQL that is true for the rows that a cutoff keeps."""
    column = escape_name(cutoff.column)
    # A row without a date never gets old.
    return f"({column} >= {cutoff_value(columns, cutoff)} OR {column} IS NULL)"


def cutoff_value(columns: Sequence[Column], cutoff: Cutoff) -> str:
    """Return the cutoff as SQL, in the type of its column."""
    return literal(cutoff.value, type_of(columns, cutoff.column))


def fingerprint(connection: Connection, relation: str) -> Fingerprint:
    """Return the fingerprint of a relation, named `source` in the SQL, with row hashes."""
    # A sum of bigints would overflow.
    hashes = f"SUM(CAST({escape_name(ROW_HASH)} AS NUMERIC(38,0)))"
    (found,) = connection.execute_list_query(f"SELECT COUNT(*), {hashes} FROM {relation}")  # noqa: S608
    row_count, hash_sum = found
    # In hyperd, the sum over no rows is NULL.
    return Fingerprint.model_validate({"rows": row_count, "hash_sum": hash_sum or 0})


def row_count(connection: Connection, relation: str) -> Fingerprint:
    """Return the number of rows of a relation, named `source` in the SQL, as a fingerprint.

    Unlike their hashes, the rows of a lake can be counted without reading all columns.
    """
    return Fingerprint(rows=rows_in(connection, relation), hash_sum=0)


def literal(value: str, type_: str) -> str:
    """Return a value as SQL."""
    return f"CAST({string_literal(value)} AS {type_})"


def desired_table(
    hyper: Callable[[], HyperProcess],
    table: Table,
    snapshot: Snapshot,
    *,
    known: TableContent | None,
    now: datetime,
) -> TableContent:
    """Return the desired content of a table; files are opened only if `known` does not have it."""
    whole = TableContent(
        model=table.model,
        version=snapshot.number,
        columns=snapshot.columns,
        all_rows=snapshot.fingerprint,
        content=snapshot.fingerprint,
        # Both are checked before the record is written.
        key=table.policy.key if isinstance(table.policy, Diff) else (),
        cursor=table.policy.cursor if isinstance(table.policy, Append) else None,
    )
    if table.retain is None:
        return whole
    # The recorded window holds only for the rows that it was computed from.
    if known and (known.columns, known.all_rows) != (whole.columns, whole.all_rows):
        known = None
    cutoff = _cutoff(hyper, table.name, table.retain, snapshot, known=known, now=now)
    if cutoff is None:
        return whole
    if known and known.cutoff == cutoff:
        return whole.model_copy(update={"cutoff": cutoff, "content": known.content})
    rows, is_additive = snapshot.fingerprint, snapshot.fingerprint.is_additive
    kept = select_sql(table_source(table.name, snapshot, cutoff, hashed=is_additive))
    with connect(hyper()) as connection:
        content = (fingerprint if is_additive else row_count)(connection, f"{kept} source")
    if not is_additive:
        # Of the same files, two cutoffs of one column that keep equally many rows keep the same.
        digest = hashlib.sha256(f"{rows.hash_sum} {cutoff.column}".encode()).hexdigest()
        update = {"rows": content.rows, "hash_sum": int(digest[:16], 16)}
        content = rows.model_copy(update=update)
    return whole.model_copy(update={"cutoff": cutoff, "content": content})


def _cutoff(
    hyper: Callable[[], HyperProcess],
    table: str,
    retain: Retain,
    snapshot: Snapshot,
    *,
    known: TableContent | None,
    now: datetime,
) -> Cutoff | None:
    """Return the cutoff of a rolling window; None if there is no latest value to count from."""
    rule = {"column": retain.column, "days": retain.days, "as_of": retain.as_of}
    if retain.as_of == "run":
        return Cutoff(**rule, value=str(now.date() - timedelta(days=retain.days)))
    # Equal rows have the same latest value, so no file need be opened to find it.
    recorded = known.cutoff if known else None
    if recorded and recorded == Cutoff(**rule, value=recorded.value):
        return recorded
    type_ = type_of(snapshot.columns, retain.column)
    with connect(hyper()) as connection:
        last = connection.execute_scalar_query(
            f"SELECT CAST(CAST(MAX({escape_name(retain.column)}) - INTERVAL '{retain.days} days' "  # noqa: S608
            f"AS {type_}) AS TEXT) FROM {select_sql(table_source(table, snapshot))} source"
        )
    return None if last is None else Cutoff(**rule, value=str(last))


def type_of(columns: Sequence[Column], name: str) -> str:
    """Return the Hyper type of a column."""
    column = next(column for column in columns if column.name == name)
    return hyper_type(column, table="")


_NOT_ASKED = "its fields are not asked for"


@dataclass(frozen=True)
class Declared:
    """The metadata that a data source declares, and what was written of them before.

    Attributes:
        desired: the content that each table is to have.
        record: what is known to be published.
        inherited: what is said of columns elsewhere, by model and column; it beats the comments of
            the columns in Spark.
        link: the address of the asset in Dagster's web UI; None if that is not known.
        accepts: leave what both the declaration and a person changed as it is on the server, and
            do not report it again.
    """

    declaration: Declaration
    desired: Mapping[str, TableContent]
    record: Checkpoint | None
    models: Models
    inherited: Inherited
    stored: Written
    link: str | None
    accepts: bool = False

    @property
    def _policy(self) -> Policy:
        return "accept" if self.accepts else self.declaration.metadata.on_conflict

    @cached_property
    def fields(self) -> Values:
        """The values of fields that are declared.

        Raises:
            RefusedError: something is declared of columns that there are not.
        """
        columns = {name: [e.name for e in table.columns] for name, table in self.desired.items()}
        said: dict[tuple[str, str], FieldMetadata] = {}
        for table in self.declaration.tables:
            comments = self.models[table.model].comments
            for column in columns[table.name]:
                field, comment = self.inherited.get((table.model, column)), comments.get(column)
                if comment and not (field and field.description):
                    field = replace(field or FieldMetadata(), description=comment)
                if field:
                    said[table.name, column] = field
        wanted = self.declaration.wanted(columns, said)
        if misfits := [*self._misfits(wanted)]:
            raise RefusedError("\n".join(misfits))
        return wanted

    def _misfits(self, wanted: Values) -> Iterator[str]:
        """Yield a sentence for each column whose type has no such format."""
        for table, columns in self.tables.items():
            for name, type_ in columns:
                path = ("field", table, name, "format")
                if problem := misfit(wanted.get(path, ""), datatype_of(type_)):
                    yield f"The {shown(path)}: {problem}. Correct or remove it"

    @cached_property
    def tables(self) -> Tables:
        """The columns of the file to be published."""
        return {
            self.declaration.published_name(name): [
                (column.name, hyper_type(column, table=name)) for column in table.columns
            ]
            for name, table in self.desired.items()
        }

    @cached_property
    def pasts(self) -> Sequence[Values]:
        """What was written last, the newest first; several if it is not known which."""
        return [self.stored.read(name) for name in self.record.written] if self.record else ()

    @property
    def past(self) -> Values:
        """The newest values that were written."""
        return self.pasts[0] if self.pasts else {}

    @property
    def wanted(self) -> Values:
        """All values that are declared."""
        return {**self.fields, **self.about()}

    def about(self, *, certified: bool | None = None) -> Values:
        """What is declared of the data source itself, by default certified like before."""
        certified = CERTIFIED in self.past if certified is None else certified
        built = f"Built from {', '.join(table.model for table in self.declaration.tables)}."
        lineage = " ".join(filter(None, (built, self.link)))
        return self.declaration.about(lineage=lineage, certified=certified)

    def merged(
        self, held: Metadata | None, about: Values | None, *, is_edited: bool
    ) -> Merge | None:
        """Merge what is declared into what the server holds; None if nothing is to keep or set.

        Args:
            held: what it holds; without a `.tds`, what was written last.
            about: the values that it has of the data source itself; None if they are not asked for.
            is_edited: whether another user may have edited the metadata of fields.
        """
        is_ours = any(not is_about(path) for each in (self.fields, *self.pasts) for path in each)
        asked = {True: about is not None, False: held is not None and (is_edited or is_ours)}
        wanted, *pasts = sides = [
            {path: value for path, value in each.items() if asked[is_about(path)]}
            for each in (self.wanted, *self.pasts)
        ]
        if not (asked[False] or any(sides)):
            return None
        tds = Tds(held.tds) if held and asked[False] and held.tds else None
        last = {path: value for path, value in self.past.items() if not is_about(path)}
        found = dict(tds.values(wanted, pasts) if tds else last if asked[False] else {})
        if not is_edited:
            # What the server has made of a file is nobody's work.
            own = {path: value for path, value in found.items() if path in wanted}
            pasts = [{**own, **each} for each in pasts or [{}]]
        found |= dict(about or {})
        policy = self._policy
        result = merge(wanted, pasts, found, on_conflict=policy)
        if held is None or tds is None:
            return replace(result, problem=None if asked[False] else _NOT_ASKED)
        try:
            tables = self.tables
            result = merged_into(tds, wanted, pasts, found, on_conflict=policy, tables=tables)
        except ValueError as error:
            return replace(result, problem=str(error))
        gone = [*self._gone(held, result.of_fields)]
        broken = tuple(self._broken(tds, gone, result.of_fields))
        work = {path: ", ".join(tds.work_on(path, pasts)) for path in gone if is_edited}
        lost = {path: words for path, words in work.items() if words}
        # Nobody edits the relationships of tables in a `.tds`.
        is_other = self.record and self.record.declaration != self.declaration.digest()
        problem = "the declaration changed" if is_other else None
        return replace(result, problem=problem, broken=broken, lost=lost)

    def merged_about(self, found: Values, *, certified: bool | None) -> Merge:
        """Merge what is declared of the data source itself into what the server says of it."""
        past = {path: value for path, value in self.past.items() if is_about(path)}
        wanted = self.about(certified=certified)
        if self.declaration.certify and CERTIFIED not in wanted:
            # As long as it is declared, it is withdrawn from rows that differ, whoever gave it.
            past = {path: value for path, value in past.items() if path[0] not in MARKS}
        return merge(wanted, [past], found, on_conflict=self._policy)

    def has(self, path: Path) -> bool:
        """Whether there is to be a column, or is declared a calculation, with these first parts."""
        if path[0] != "field":
            return (*path, "formula") in self.fields
        return path[2] in (column for column, _ in self.tables.get(path[1], ()))

    def _gone(self, held: Metadata, changes: Mapping[Path, str | None]) -> Iterator[Path]:
        """The first parts of the paths of columns and calculations that go."""
        columns = (("field", *each) for each in sorted(held.columns or ()))
        yield from (path for path in columns if not self.has(path))
        for path, value in changes.items():
            if path[::2] == ("calculation", "formula") and value is None:
                yield path[:2]

    def _broken(
        self, tds: Tds, gone: Iterable[Path], changes: Mapping[Path, str | None]
    ) -> Iterator[str]:
        for kind, *name in gone:
            if users := tds.used_by(*name, but=changes):
                what = f'column "{name[-1]}" of "{name[0]}"' if kind == "field" else ""
                what = what or f'calculation "{name[0]}"'
                yield f"the {what} is gone, which is in {', '.join(users)}"


def lost(sent: bytes, held: Metadata, declared: Declared) -> list[str]:
    """What the server does not hold of the metadata that were sent, as phrases."""
    meant = read_metadata(sent)
    if meant.digest == held.digest:
        return []
    gone = [
        f"{kind} {', '.join(missing)}"
        for kind, names in meant.work.items()
        if (missing := [name for name in names if name not in held.work.get(kind, ())])
    ]
    before, after = (Tds(each).values(declared.fields) for each in (sent, held.tds))
    changed = [
        f"{shown(path)} ({quoted(path, after.get(path))} instead of {quoted(path, value)})"
        for path, value in before.items()
        if after.get(path) != value
    ]
    return gone + changed

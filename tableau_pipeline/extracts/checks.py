"""Check models and their rows before anything is sent."""

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tableauhyperapi import HyperException, HyperProcess, escape_name

from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.policies import Append, Diff, Partitions, is_span
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.affected_rows import TableChange
from tableau_pipeline.extracts.content import Models, table_source
from tableau_pipeline.hyper.build import key_problem, null_problem
from tableau_pipeline.hyper.messages import is_out_of_memory, may_be_damaged
from tableau_pipeline.hyper.parquet import TableSource, select_sql, unreadable_columns
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.hyper.types import (
    PRODUCTS,
    Column,
    TypePolicy,
    UnsupportedTypeError,
    comparable,
    file_version,
    hyper_type,
    is_moment,
)
from tableau_pipeline.outcome import Check, Code, Refusal
from tableau_pipeline.rendering import megabytes
from tableau_pipeline.yaml_keys import not_for_tableau

# Spark accepts several names for some types. The keys are names that Spark never reports.
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}


def spark_name(type_: str) -> str:
    """Return a type as Spark reports it: "Decimal (10, 2)" becomes "decimal(10,2)"."""
    plain = re.sub(r"\s*([(),<>:])\s*", r"\1", type_.strip())
    if re.search(r"[<:]|collate", plain, re.IGNORECASE):
        # Names of fields and collations inside the type are case-sensitive.
        return plain
    plain = plain.lower()
    plain = re.sub(r"^(dec|numeric)\b", "decimal", plain)
    return _ALIASES.get(plain, "decimal(10,0)" if plain == "decimal" else plain)


_NUMBERS = re.compile(r"(tiny|small|big)?int|float( as real)?|double|decimal\(\d+,\d+\)")


@dataclass(frozen=True, slots=True)
class TypedSnapshots:
    """The versions of models, with the column types that a data source declares."""

    snapshots: Snapshots
    types: TypePolicy

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if the model has no version."""
        snapshot = self.snapshots.newest(asset_key)
        return snapshot and snapshot.with_types(self.types)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if the version was removed."""
        snapshot = self.snapshots.version(asset_key, number)
        return snapshot and snapshot.with_types(self.types)


def checked_models(declaration: Declaration, found: Mapping[str, Snapshot | None]) -> Models:
    """Check that the models of a declaration can be published, and return them; open no file.

    One error reports all problems. Refresh policies are checked only if there is no other problem.

    Raises:
        RefusedError: at least one model cannot be published.
    """
    models = {model: snapshot for model, snapshot in found.items() if snapshot and snapshot.parts}
    tables = {table.name: table for table in declaration.tables if table.model in models}
    readers = {table.model: f'Table "{table.name}"' for table in reversed(declaration.tables)}
    types = {name: _types(models[table.model]) for name, table in tables.items()}
    # If no model has a snapshot yet, there is no schema, so do not report a failed schema check.
    check = Check.SCHEMA if types else None
    refusals = [
        Refusal(
            f'{readers.get(model, "Feed of changes")}: model "{model}" has no snapshot',
            Code.NO_SNAPSHOT,
            check=check,
            remedy="Materialize that asset first; if it exists under another name, correct "
            '`model:` (its asset key, such as "dbt/orders")',
        )
        for model in declaration.models
        if model not in models
    ]
    refusals += (
        _misfit(problem) for snapshot in models.values() if (problem := snapshot.column_problem())
    )
    for edge in declaration.relationships:
        refusals += _relationship_problems(edge, types)
    for table in tables.values():
        columns = models[table.model].columns
        refusals += _type_problems(declaration, table.name, columns)
        refusals += contract_problems(table, columns, declaration.types)
    # Check policies only if there are no problems so far: these checks need all models.
    if not refusals:
        for table in tables.values():
            refusals += _policy_problems(table, models)
    if refusals:
        raise RefusedError(*refusals)
    return models


def _types(snapshot: Snapshot) -> dict[str, str]:
    return {column.name: column.type for column in snapshot.columns}


def _misfit(
    problem: str, table: str | None = None, column: str | None = None, remedy: str = ""
) -> Refusal:
    """Return a refusal of a model that does not fit its declaration."""
    return Refusal(problem, Code.MODEL, None, Check.SCHEMA, table, column, remedy)


def _relationship_problems(
    edge: Relationship, known: Mapping[str, Mapping[str, str]]
) -> Iterator[Refusal]:
    for left, right in edge.on:
        types = []
        for table, column in ((edge.many, left), (edge.one, right)):
            # The columns of a table are known only if its model has a snapshot, so skip other
            # tables.
            if table in known and column not in known[table]:
                problem = (
                    f'Relationship {edge}: table "{table}" has no column "{column}"; it has '
                    f"{', '.join(known[table])}"
                )
                yield _misfit(problem, table, column)
            elif table in known:
                types.append(known[table][column])
        if len(types) == 2 and not comparable(*types):
            yield _misfit(
                f"Relationship {edge}: {edge.many}.{left} is {types[0]}, but {edge.one}.{right} is "
                f"{types[1]}",
                remedy="Cast one of the two columns in its model",
            )


def _type_problems(
    declaration: Declaration, table: str, columns: Sequence[Column]
) -> Iterator[Refusal]:
    """Yield a refusal of each column that Tableau, or `max_database_version`, does not allow."""
    limit = declaration.max_database_version
    for column in columns:
        if sign := not_for_tableau(column.name):
            problem = (
                f'Table "{table}": column {column.name!r} has the character {sign} in its name, '
                "which Tableau cannot hold"
            )
            yield _misfit(problem, table, column.name, "Rename the column in its model")
        try:
            hyper_type(column, table=table)
        except UnsupportedTypeError as error:
            yield _misfit(str(error), table, column.name)
        version = file_version([column])
        if limit is not None and version > limit:
            problem = (
                f'Table "{table}", column "{column.name}": {column.type} needs version {version} '
                f"of the .hyper format ({PRODUCTS[version]}), but max_database_version is {limit}"
            )
            remedy = (
                "Cast the column in its model, or raise the limit once every reader's product is "
                "that new"
            )
            yield _misfit(problem, table, column.name, remedy)


def contract_problems(
    table: Table, columns: Sequence[Column], types: TypePolicy
) -> Iterator[Refusal]:
    """Yield one refusal with all differences between a contract and the columns, if there are any.

    Args:
        columns: the actual columns, with the types that the data source declares.
    """
    if not table.contract:
        return
    contract = [Column(column.name, spark_name(column.type)) for column in table.contract]
    promised = {column.name: types.apply(column).type for column in contract}
    actual = {column.name: column.type for column in columns}
    differences = [
        *(f"{name} ({type_}) is missing" for name, type_ in promised.items() if name not in actual),
        *(
            f"{name} is {actual[name]}, not {type_}"
            for name, type_ in promised.items()
            if name in actual and actual[name] != type_
        ),
        *(f"{name} ({actual[name]}) is not in it" for name in actual if name not in promised),
    ]
    if differences:
        problem = (
            f'Table "{table.name}": model "{table.model}" breaks the contract of its columns: '
            f"{'; '.join(differences)}"
        )
        yield _misfit(problem, table.name, remedy="Fix the model, or change `contract`")


def _policy_problems(table: Table, models: Models) -> Iterator[Refusal]:
    """Yield the refusals of a model that does not fit a table's `retain` or refresh policy."""
    snapshot = models[table.model]
    types = _types(snapshot)
    if table.retain:
        column = table.retain.column
        yield from _missing("retain: column", [column], types, table)
        if column in types and not is_moment(Column(column, types[column])):
            problem = (
                f'retain: column "{column}" is {types[column]}; a rolling window needs a date or a '
                "timestamp"
            )
            yield _policy_misfit(table, problem, column)
    match table.policy:
        case Diff(key, feed):
            yield from _missing("refresh: diff: key", key, types, table)
            if feed:
                feed_columns = dict(feed.columns)
                setting = f'refresh: diff: changes: columns (feed "{feed.model}")'
                columns = [feed_columns.get(name, name) for name in key]
                yield from _missing(setting, columns, _types(models[feed.model]), table)
        case Append(cursor, lookback):
            yield from _missing("refresh: append: cursor", [cursor], types, table)
            if cursor in types:
                yield from _cursor_problems(table, Column(cursor, types[cursor]), lookback)
        case Partitions(column):
            yield from _missing("refresh: partitions: column", [column], types, table)
            if not snapshot.is_partitioned:
                problem = f'refresh: partitions: the model "{table.model}" is not partitioned'
                remedy = "Give its asset a partitions_def, or choose another refresh policy"
                yield _policy_misfit(table, problem, remedy=remedy)


def _policy_misfit(
    table: Table, problem: str, column: str | None = None, remedy: str = ""
) -> Refusal:
    return _misfit(f'Table "{table.name}": {problem}', table.name, column, remedy)


def _missing(
    what: str, wanted: Sequence[str], types: Mapping[str, str], table: Table
) -> Iterator[Refusal]:
    for name in wanted:
        if name not in types:
            problem = f'{what} names "{name}", but the model has the columns {", ".join(types)}'
            yield _policy_misfit(table, problem, name)


def _cursor_problems(table: Table, cursor: Column, lookback: int | str | None) -> Iterator[Refusal]:
    text, moment = str(lookback), is_moment(cursor)
    if cursor.type == "binary":
        problem = f'refresh: append: the cursor "{cursor.name}" is binary, which has no order'
        yield _policy_misfit(table, problem, cursor.name, "Choose another cursor")
    if lookback is None:
        return
    if moment and not is_span(text):
        problem = f'refresh: append: lookback "{text}" is not a span such as "3 days" or "12 hours"'
        yield _policy_misfit(table, problem, cursor.name)
    elif not moment and not (_NUMBERS.fullmatch(cursor.type) and text.isdecimal()):
        problem = (
            f'refresh: append: lookback "{text}" does not go with the cursor "{cursor.name}" of '
            f"type {cursor.type}"
        )
        remedy = "Write a number for a numeric cursor, a span for a date or a timestamp"
        yield _policy_misfit(table, problem, cursor.name, remedy)


def damage(hyper: Callable[[], HyperProcess], snapshot: Snapshot) -> str | None:
    """Search for an unreadable file; return its name and the reason, or None if none is found."""
    for file in snapshot.files:
        table = table_source("", snapshot, hashed=True, files=[file])
        # Count each column, because a plain COUNT(*) would not read the values.
        counts = ", ".join(f"COUNT({escape_name(column.name)})" for column in table.columns)
        try:
            # Call `hyper` for each file, because a damaged file may have crashed the last hyperd.
            with connect(hyper()) as connection:
                connection.execute_list_query(f"SELECT {counts} FROM {select_sql(table)} source")  # noqa: S608
        except HyperException as error:
            if not is_out_of_memory(error):
                # The message is like 'file is not a Parquet file: File /the/path'.
                reason = str(error.main_message).partition(": ")[0]
                return f"{snapshot.folder.full_name(file.name)}: {reason}"
    return None


@contextmanager
def readable(
    hyper: Callable[[], Hyperd], declaration: Declaration, models: Models
) -> Generator[None]:
    """Within the block, turn errors of hyperd into errors that name the cause, if it is found.

    Raises:
        RefreshError: hyperd needs more memory than it may use.
        RefusedError: a file is missing or damaged, or hyperd cannot hold some values. The error
            names the file, or the tables and columns with the values.
    """
    try:
        yield
    except HyperException as error:
        if is_out_of_memory(error):
            raise RefreshError(
                f"The rows need more than hyperd's memory of {megabytes(hyper().memory)}; raise "
                "HYPER_MEMORY_LIMIT"
            ) from error
        # Search for damage only if the message suggests damage. The search reads each file, and
        # also reports a file as damaged if hyperd cannot hold some of its values.
        is_suspect = may_be_damaged(error)
        for model, snapshot in models.items():
            gone = [f"{file}: the file is gone" for file in snapshot.missing()[:1]]
            if problem := "".join(gone) or (is_suspect and damage(hyper, snapshot)):
                raise RefusedError(
                    f'The model "{model}" cannot be read: {problem}. Materialize it again, or '
                    "restore the file.",
                    code=Code.SNAPSHOT,
                ) from error
        # Search for values that hyperd cannot hold. The search comes only after a failure, because
        # it reads each column of each table once more.
        problems = [
            problem
            for table in declaration.tables
            for problem in unreadable_columns(
                hyper(), table_source(table.name, models[table.model])
            )
        ]
        if not problems:
            raise
        raise RefusedError(
            f"Hyper cannot hold some values. In {'; in '.join(problems)}. Fix them in the model.",
            code=Code.MODEL,
        ) from error


def check_rows(
    hyper: HyperProcess,
    declaration: Declaration,
    tables: Mapping[str, TableSource],
    *,
    known: Mapping[str, TableChange] | None = None,
    samples: bool = False,
) -> None:
    """Refuse tables with NULL keys, repeated keys or NULL cursors.

    A repeated key in the table `to` of a relationship makes sums wrong. If a key of a `diff` is
    repeated, or a key or cursor is NULL, an update cannot tell which published row is meant.

    Args:
        tables: the desired rows of each table to check.
        known: the changes of tables whose published rows were checked for their key or cursor. In
            these tables, only new rows are checked for a NULL cursor, and the keys of a `diff` are
            not checked: after building the update, the caller checks the keys of new rows.
        samples: whether the error may show values of rows.

    Raises:
        RefusedError: names the tables and the columns.
    """
    known = known or {}
    problems: list[Refusal] = []
    for edge in declaration.relationships:
        # Check only the key of the table `to`: rows of the table `from` may repeat its values.
        if edge.one in tables and (
            problem := key_problem(hyper, tables[edge.one], edge.key, samples=samples)
        ):
            problems.append(
                _bad_key(
                    f"Relationship {edge}: {problem}",
                    edge.one,
                    edge.key,
                    remedy="The key of the table `to` may be neither NULL nor repeated: fix the "
                    "model; if only the key of the table `from` is unique, swap `from` and `to`",
                )
            )
    for table in declaration.tables:
        if table.name in tables:
            problems += _policy_key_problems(
                hyper, table, tables[table.name], known.get(table.name), samples=samples
            )
    if problems:
        raise RefusedError(*problems)


def _bad_key(problem: str, table: str, key: Sequence[str], remedy: str) -> Refusal:
    column = key[0] if len(key) == 1 else None
    return Refusal(problem, Code.KEYS, None, Check.KEYS, table, column, remedy)


def _policy_key_problems(
    hyper: HyperProcess,
    table: Table,
    rows: TableSource,
    known: TableChange | None,
    *,
    samples: bool,
) -> Iterator[Refusal]:
    match table.policy:
        case Diff(key):
            if not known and (problem := key_problem(hyper, rows, key, samples=samples)):
                remedy = (
                    "The key must identify every row: fix the model, or name more columns in the "
                    "key"
                )
                yield _bad_key(f"refresh: diff: {problem}", table.name, key, remedy)
        case Append(cursor):
            if known and known.old:
                rows = known.desired(known.unshared(known.new))
            if problem := null_problem(hyper, rows, [cursor], samples=samples):
                remedy = "Every row needs a cursor: fix the model, or choose another refresh policy"
                yield _bad_key(f"refresh: append: {problem}", table.name, [cursor], remedy)

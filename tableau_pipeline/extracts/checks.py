"""The contract of a table: the columns that its model must have."""

import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tableauhyperapi import HyperException, HyperProcess, escape_name

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import (
    Append,
    Declaration,
    Diff,
    Feed,
    Partitions,
    Replace,
    Table,
    is_span,
    megabytes,
)
from tableau_pipeline.core.snapshot import DataFile, Snapshot, Snapshots
from tableau_pipeline.errors import Check, RefreshError, RefusedError
from tableau_pipeline.extracts.affected import Change
from tableau_pipeline.extracts.desired import Models, table_source
from tableau_pipeline.hyper.build import key_problem, null_problem, orphans, shared_key_problem
from tableau_pipeline.hyper.parquet import rows, unreadable_columns
from tableau_pipeline.hyper.process import Hyperd, connect, is_out_of_memory
from tableau_pipeline.hyper.tables import Column, Relationship, TableSource
from tableau_pipeline.hyper.types import (
    PRODUCTS,
    TypePolicy,
    UnsupportedTypeError,
    comparable,
    file_version,
    hyper_type,
    is_moment,
)

# Spark accepts several names for some types, but reports only one.
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


def contract_problems(table: Table, columns: Sequence[Column], types: TypePolicy) -> Iterator[str]:
    """Yield a sentence with all differences between a contract and the actual columns.

    Args:
        columns: the actual columns, with the types that the data source declares.
    """
    if not table.columns:
        return
    contract = [Column(column.name, spark_name(column.type)) for column in table.columns]
    promised = {column.name: types.apply(column).type for column in contract}
    found = {column.name: column.type for column in columns}
    differences = [
        *(f"{name} ({type_}) is missing" for name, type_ in promised.items() if name not in found),
        *(
            f"{name} is {found[name]}, not {type_}"
            for name, type_ in promised.items()
            if name in found and found[name] != type_
        ),
        *(f"{name} ({found[name]}) is not in it" for name in found if name not in promised),
    ]
    if differences:
        yield (
            f'Table "{table.name}": model "{table.model}" breaks the contract of its columns: '
            f"{'; '.join(differences)}. Fix the model, or change `columns`"
        )


# Check the columns that a table's policy names: their existence and their types.


_NUMBERS = re.compile(r"(tiny|small|big)?int|float( as real)?|double|decimal\(\d+,\d+\)")


def policy_problems(table: Table, models: Models) -> list[str]:
    """Return a sentence for each part of a table's declaration that does not fit its model."""
    snapshot = models[table.model]
    types = _types(snapshot.columns)
    problems = [*_of_retain(table, types)]
    match table.policy:
        case Diff(key, feed):
            problems += _missing("refresh: diff: key", key, types)
            problems += _of_feed(feed, key, models) if feed else []
        case Append(cursor, lookback):
            problems += _missing("refresh: append: cursor", [cursor], types)
            problems += _of_lookback(cursor, lookback, types)
        case Partitions(column):
            problems += _missing("refresh: partitions: column", [column], types)
            if not snapshot.is_partitioned:
                problems.append(
                    f'refresh: partitions: the model "{table.model}" is not partitioned: give its '
                    "asset a partitions_def, or choose another refresh policy"
                )
        case Replace():
            pass
    return [f'Table "{table.name}": {problem}' for problem in problems]


def _missing(what: str, wanted: Sequence[str], types: dict[str, str]) -> Iterator[str]:
    for name in wanted:
        if name not in types:
            yield f'{what} names "{name}", but the model has the columns {", ".join(types)}'


def _of_retain(table: Table, types: dict[str, str]) -> Iterator[str]:
    if table.retain is None:
        return
    column = table.retain.column
    yield from _missing("retain: column", [column], types)
    if column in types and not is_moment(Column(column, types[column])):
        yield (
            f'retain: column "{column}" is {types[column]}; a rolling window needs a date or a '
            "timestamp"
        )


def _of_lookback(cursor: str, lookback: int | str | None, types: dict[str, str]) -> Iterator[str]:
    type_ = types.get(cursor)
    if type_ == "binary":
        yield (
            f'refresh: append: the cursor "{cursor}" is binary, which has no order: '
            "choose another cursor"
        )
    if lookback is None or type_ is None:
        return
    text, moment = str(lookback), is_moment(Column(cursor, type_))
    if moment and not is_span(text):
        yield f'refresh: append: lookback "{text}" is not a span such as "3 days" or "12 hours"'
    elif not moment and not (_NUMBERS.fullmatch(type_) and text.isdecimal()):
        yield (
            f'refresh: append: lookback "{text}" does not go with the cursor "{cursor}" of type '
            f"{type_}: write a number for a numeric cursor, a span for a date or a timestamp"
        )


def _of_feed(feed: Feed, key: Sequence[str], models: Models) -> Iterator[str]:
    types = _types(models[feed.model].columns)
    yield from _missing(
        f'refresh: diff: changes: columns (feed "{feed.model}")',
        [of_feed for _, of_feed in feed.columns],
        types,
    )
    if unnamed := set(key) - {of_table for of_table, _ in feed.columns}:
        yield (
            f'refresh: diff: changes: the feed "{feed.model}" has no column for the key '
            f"{', '.join(sorted(unnamed))}"
        )


def _types(columns: Sequence[Column]) -> dict[str, str]:
    return {column.name: column.type for column in columns}


# Check the models before any file is opened.


@dataclass(frozen=True, slots=True)
class Declared:
    """The versions of models, with the column types that a data source declares."""

    snapshots: Snapshots
    types: TypePolicy

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if it has none."""
        found = self.snapshots.newest(asset_key)
        return found and found.with_types(self.types)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if it was removed."""
        found = self.snapshots.version(asset_key, number)
        return found and found.with_types(self.types)


def checked_models(declaration: Declaration, found: Mapping[str, Snapshot | None]) -> Models:
    """Return the models of a declaration if they can be published.

    All problems are refused at once.

    Raises:
        RefusedError: names each table, its model or column, and the remedy.
    """
    models = {model: each for model, each in found.items() if each and each.parts}
    problems = [
        f'{_reader(declaration, model)}: model "{model}" has no snapshot. Materialize that asset '
        "first; if it exists under another name, correct `model:` (its asset key, such as "
        '"dbt/orders")'
        for model in declaration.models
        if model not in models
    ]
    problems += filter(None, (snapshot.column_problem() for snapshot in models.values()))
    known = {
        table.name: models[table.model].columns
        for table in declaration.tables
        if table.model in models
    }
    problems += [
        problem
        for edge in declaration.relationships
        for problem in _relationship_problems(edge, known)
    ]
    for name, columns in known.items():
        problems += _type_problems(name, columns)
    problems += _version_problems(declaration, known)
    for table in declaration.tables:
        if table.name in known:
            problems += contract_problems(table, known[table.name], declaration.types)
    # Policies can be checked only against models that exist.
    if not problems:
        problems = [
            problem for table in declaration.tables for problem in policy_problems(table, models)
        ]
    if problems:
        text = "\n".join(problems)
        # Where no model exists yet, there is no schema that could have failed its check.
        raise RefusedError(text, {Check.SCHEMA: text} if known else {})
    return models


def _reader(declaration: Declaration, model: str) -> str:
    tables = [table.name for table in declaration.tables if table.model == model]
    return f'Table "{tables[0]}"' if tables else "Feed of changes"


def _relationship_problems(
    edge: Relationship, known: Mapping[str, tuple[Column, ...]]
) -> list[str]:
    wanted = [(edge.many, many) for many, _ in edge.on] + [(edge.one, one) for _, one in edge.on]
    problems = []
    for table, column in wanted:
        columns = known.get(table)
        names = [existing.name for existing in columns] if columns else [column]
        if column not in names:
            problems.append(
                f'Relationship {edge}: table "{table}" has no column "{column}"; it has '
                f"{', '.join(names)}"
            )
    return problems or _pair_problems(edge, known)


def _pair_problems(edge: Relationship, known: Mapping[str, tuple[Column, ...]]) -> list[str]:
    """Return the pairs of columns with types that hyperd cannot compare, as sentences."""
    many, one = (
        {column.name: column.type for column in known.get(table, ())}
        for table in (edge.many, edge.one)
    )
    return [
        f"Relationship {edge}: {edge.many}.{left} is {many[left]}, but {edge.one}.{right} is "
        f"{one[right]}; cast one of them in its model"
        for left, right in edge.on
        if left in many and right in one and not comparable(many[left], one[right])
    ]


def _type_problems(table: str, columns: tuple[Column, ...]) -> list[str]:
    problems = []
    for column in columns:
        try:
            hyper_type(column, table=table)
        except UnsupportedTypeError as error:
            problems.append(str(error))
    return problems


def _version_problems(
    declaration: Declaration, known: Mapping[str, tuple[Column, ...]]
) -> list[str]:
    limit = declaration.max_database_version
    if limit is None:
        return []
    return [
        f'Table "{table}", column "{column.name}": {column.type} needs version '
        f"{file_version([column])} of the .hyper format ({PRODUCTS[file_version([column])]}), but "
        f"max_database_version is {limit}; cast the column in its model, or raise the limit once "
        "every reader's product is that new"
        for table, columns in known.items()
        for column in columns
        if file_version([column]) > limit
    ]


# Find the damaged files of a snapshot, once hyperd has failed on them.


def damage(hyper: Callable[[], HyperProcess], snapshot: Snapshot) -> str | None:
    """Return the first file that cannot be read, and why; None if there is none. Reads all."""
    for file in snapshot.files:
        if reason := _reason(hyper, snapshot, file):
            return f"{snapshot.folder.full_name(file.name)}: {reason}"
    return None


def _reason(hyper: Callable[[], HyperProcess], snapshot: Snapshot, file: DataFile) -> str | None:
    table = table_source("", snapshot, hashed=True, files=[file])
    # A plain count need not read the values.
    counts = ", ".join(f"COUNT({escape_name(column.name)})" for column in table.columns)
    try:
        # A damaged file may have crashed the last hyperd.
        with connect(hyper()) as connection:
            connection.execute_list_query(f"SELECT {counts} FROM {rows(table)} source")  # noqa: S608
    except HyperException as error:
        # 'file is not a Parquet file: File /the/path'
        return None if is_out_of_memory(error) else str(error.main_message).partition(": ")[0]
    return None


# Say why hyperd could not read models: little memory, damaged files, values it cannot hold.


# What hyperd says of files, and not of their values.
_DAMAGED = ("not a Parquet file", "probably corrupt")


@contextmanager
def readable(
    hyper: Callable[[], Hyperd], declaration: Declaration, models: Models
) -> Generator[None]:
    """Report too little memory, a damaged file, or columns with values on which hyperd fails.

    Raises:
        RefreshError: hyperd may use too little memory.
        RefusedError: names the file, or the tables and columns.
    """
    try:
        yield
    except HyperException as error:
        if is_out_of_memory(error):
            raise RefreshError(
                f"The rows need more than hyperd's memory of {megabytes(hyper().memory)}; raise "
                "HYPER_MEMORY_LIMIT"
            ) from error
        for model, snapshot in models.items():
            if problem := _damage(hyper, snapshot, error):
                raise RefusedError(
                    f'The model "{model}" cannot be read: {problem}. Materialize it again, or '
                    "restore the file."
                ) from error
        # Only after a failure, because this search reads each column of each table once more.
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
            f"Hyper cannot hold some values. In {'; in '.join(problems)}. Fix them in the model."
        ) from error


def _damage(hyper: Callable[[], Hyperd], snapshot: Snapshot, error: HyperException) -> str | None:
    if missing := snapshot.missing():
        return f"{missing[0]}: the file is gone"
    # To find damage, each file is read; values that hyperd cannot hold look like it there.
    return damage(hyper, snapshot) if any(words in str(error) for words in _DAMAGED) else None


# Check the relationships between tables with hyperd: unique keys, and rows without a partner.
#
# In an update, only the rows that came or went are looked at, and the keys that they point to.


def relationship_problems(
    hyper: HyperProcess,
    declaration: Declaration,
    sources: Mapping[str, TableSource],
    changes: Mapping[str, Change],
) -> Iterator[str]:
    """Say which relationships have repeated or NULL keys on their one side, among these tables.

    Args:
        changes: tables that are updated; their keys were unique in the published version.
    """
    for edge in declaration.relationships:
        # The many side may repeat its values, so a change of it cannot break the relationship.
        if edge.one not in sources:
            continue
        change = changes.get(edge.one)
        if change and change.old:
            problem = _new_key_problem(hyper, edge, change)
        else:
            problem = key_problem(hyper, sources[edge.one], edge.key)
        if problem:
            yield (
                f"Relationship {edge}: {problem}. The one side of a relationship must be unique: "
                "fix the model, or turn the relationship round"
            )


def count_orphans(
    hyper: HyperProcess,
    declaration: Declaration,
    sources: Mapping[str, TableSource],
    *,
    changes: Mapping[str, Change],
    known: Mapping[str, int],
) -> dict[str, int]:
    """Count the rows without a partner in the other table, by relationship of changed tables.

    Tableau shows them without the fields of the other table. That deserves a warning, but is no
    error.

    Args:
        changes: the tables that are updated; {} if the whole file is published.
        known: the counts of what is published; relationships without orphans may be left out.
    """
    edges = declaration.relationships
    if not changes:
        return {str(edge): _all_orphans(hyper, edge, sources) for edge in edges}
    return {
        str(edge): _orphans(hyper, edge, sources, changes=changes, known=known.get(str(edge), 0))
        for edge in edges
        if {edge.many, edge.one}.intersection(changes)
    }


def _new_key_problem(hyper: HyperProcess, edge: Relationship, change: Change) -> str | None:
    came = change.source(change.unshared(change.new))
    if problem := key_problem(hyper, came, edge.key):
        return problem
    if not _changed_keys(hyper, edge, change):
        return None
    return shared_key_problem(hyper, came, change.source(change.shared), edge.key)


def _all_orphans(
    hyper: HyperProcess, edge: Relationship, sources: Mapping[str, TableSource]
) -> int:
    return orphans(hyper, rows(sources[edge.many]), rows(sources[edge.one]), edge.on)


def _orphans(
    hyper: HyperProcess,
    edge: Relationship,
    sources: Mapping[str, TableSource],
    *,
    changes: Mapping[str, Change],
    known: int,
) -> int:
    many, one = changes.get(edge.many), changes.get(edge.one)
    if one and (one.old is None or _changed_keys(hyper, edge, one)):
        return _all_orphans(hyper, edge, sources)
    if many is None:
        return known
    if many.old is None or not many.shared:
        return _all_orphans(hyper, edge, sources)
    partners = rows(sources[edge.one])
    came = orphans(hyper, many.came(), partners, edge.on)
    return known + came - orphans(hyper, many.gone(), partners, edge.on)


def _changed_keys(hyper: HyperProcess, edge: Relationship, change: Change) -> bool:
    """Whether the one side has lost a key or has a new one."""
    same = [(name, name) for name in edge.key]
    came, gone = change.came(), change.gone()
    return bool(orphans(hyper, came, gone, same) or orphans(hyper, gone, came, same))


# Check with hyperd the conditions on the rows of the models before anything is sent.


def check_rows(
    hyper: HyperProcess,
    declaration: Declaration,
    models: Models,
    desired: Mapping[str, TableContent],
    *,
    tables: Collection[str],
    changes: Mapping[str, Change] | None = None,
    known: Collection[str] = (),
) -> None:
    """Refuse NULL or repeated keys, and NULL cursors, in these tables.

    A repeated key on the one side of a relationship makes sums wrong. A repeated key of a `diff`,
    or a NULL in a key or cursor, leaves open which published row is meant.

    Args:
        changes: the tables, if they are updated. In their published version, the keys of
            relationships were unique.
        known: tables whose published version met the condition on its key or cursor. The keys of a
            `diff` are not checked: the update finds out which are new.

    Raises:
        RefusedError: names the tables, the columns and sample values.
    """
    every = sources(declaration, models, desired)
    checked = {name: each for name, each in every.items() if name in tables}
    problems = [*relationship_problems(hyper, declaration, checked, changes or {})]
    updated = {name: each for name, each in (changes or {}).items() if name in known}
    problems += _policy_problems(hyper, declaration, checked, updated)
    if problems:
        found = "\n".join(problems)
        raise RefusedError(found, {Check.KEYS: found})


def sources(
    declaration: Declaration, models: Models, desired: Mapping[str, TableContent]
) -> dict[str, TableSource]:
    """Return the desired rows of each table."""
    return {
        table.name: table_source(table.name, models[table.model], desired[table.name].cutoff)
        for table in declaration.tables
    }


def _policy_problems(
    hyper: HyperProcess,
    declaration: Declaration,
    checked: Mapping[str, TableSource],
    updated: Mapping[str, Change],
) -> Iterator[str]:
    for table in declaration.tables:
        if table.name not in checked:
            continue
        rows, change = checked[table.name], updated.get(table.name)
        match table.policy:
            case Diff(key):
                if not change and (problem := key_problem(hyper, rows, key)):
                    yield (
                        f"refresh: diff: {problem}. The key must identify every row: fix the "
                        "model, or name more columns in the key"
                    )
            case Append(cursor):
                if change and change.old:
                    rows = change.source(change.unshared(change.new))
                if problem := null_problem(hyper, rows, [cursor]):
                    yield (
                        f"refresh: append: {problem}. Every row needs a cursor: fix the model, or "
                        "choose another refresh policy"
                    )
            case _:
                pass

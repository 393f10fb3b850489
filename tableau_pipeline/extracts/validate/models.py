"""Check the models before any file is opened."""

from collections.abc import Mapping
from dataclasses import dataclass

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.errors import Check, RefusedError
from tableau_pipeline.extracts.desired import Models
from tableau_pipeline.extracts.validate.contract import contract_problems
from tableau_pipeline.extracts.validate.policy_columns import policy_problems
from tableau_pipeline.hyper.tables import Column, Relationship
from tableau_pipeline.hyper.types.spark_types import (
    UnsupportedTypeError,
    comparable,
    file_version,
    hyper_type,
)
from tableau_pipeline.hyper.types.type_policy import TypePolicy
from tableau_pipeline.hyper.types.versions import PRODUCTS


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

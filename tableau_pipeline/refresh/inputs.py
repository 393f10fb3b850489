"""What the models offer, checked before anything is built."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.build import Extract, build_extract
from tableau_pipeline.hyper.keys import key_problem
from tableau_pipeline.hyper.tables import Column, Relationship, TableSource
from tableau_pipeline.hyper.types import UnsupportedTypeError, comparable, hyper_type
from tableau_pipeline.refresh.declaration import Declaration
from tableau_pipeline.refresh.errors import RefusedError
from tableau_pipeline.refresh.snapshot import Snapshot, common_columns

# The newest snapshots of each table's model, one for each partition, by table.
Models = Mapping[str, Sequence[Snapshot]]


def check_models(declaration: Declaration, models: Models) -> None:
    """Refuse what could not be published, with everything that is wrong at once.

    Raises:
        RefusedError: names the table, the model or column, and the remedy.
    """
    problems = [
        f'Table "{table.name}": model "{table.model}" has no snapshot. Materialize that asset '
        "first; if it exists under another name, correct `model:` (its asset key, such as "
        '"dbt/orders")'
        for table in declaration.tables
        if not models[table.name]
    ]
    known = {name: common_columns(snapshots) for name, snapshots in models.items() if snapshots}
    problems += [
        problem
        for edge in declaration.relationships
        for problem in _relationship_problems(edge, known)
    ]
    for name, columns in known.items():
        problems += _type_problems(name, columns)
    if problems:
        raise RefusedError("\n".join(problems))


def check_keys(hyper: HyperProcess, declaration: Declaration, models: Models) -> None:
    """Refuse a relationship whose one side repeats a key or lacks one: its sums would be wrong.

    Raises:
        RefusedError: names the table, the columns and samples.
    """
    problems = []
    for edge in declaration.relationships:
        source = _source(edge.one, models[edge.one])
        if problem := key_problem(hyper, source, edge.key):
            problems.append(
                f"Relationship {edge}: {problem}. The one side of a relationship must be unique: "
                "mend the model, or turn the relationship round"
            )
    if problems:
        raise RefusedError("\n".join(problems))


def build(
    hyper: HyperProcess,
    declaration: Declaration,
    models: Models,
    *,
    path: Path,
) -> Extract:
    """The whole data source as one `.hyper` file at `path`."""
    physical = declaration.published_name
    return build_extract(
        hyper,
        path,
        tables=[_source(physical(name), snapshots) for name, snapshots in models.items()],
        relationships=declaration.relationships,
    )


def _source(name: str, snapshots: Sequence[Snapshot]) -> TableSource:
    files = tuple(path for snapshot in snapshots for path in snapshot.paths)
    return TableSource(name=name, columns=common_columns(snapshots), files=files)


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
    """Pairs of columns that have no value in common, which hyperd refuses."""
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

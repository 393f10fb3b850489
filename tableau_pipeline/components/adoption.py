"""Propose declarations by which the pipeline can adopt data sources of other users."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from typing import Any

import yaml
from tableauhyperapi import HyperException, escape_name

from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.identity import TAG_PREFIX, asset_key_of
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.schema import layout_changes
from tableau_pipeline.hyper.hyper_file import HyperFile, HyperFileError, TableInfo, open_hyper
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, spark_type
from tableau_pipeline.metadata.contents import Metadata, edits_phrase
from tableau_pipeline.publishing.packages import published_file
from tableau_pipeline.publishing.rest import RefreshTask
from tableau_pipeline.publishing.site import TableauSite

# The first YAML document makes Dagster load models.py in the same folder.
_HEAD = """type: dagster.DefsFolderComponent

---
type: tableau_pipeline.components.PublishedDatasource
"""
# The most characters of a data source's or a table's key. A model's key joins both keys.
_LONGEST_KEY = 80
_KEY_TYPES = ("SMALLINT", "INTEGER", "BIGINT", "TEXT")
_CONSTRAINTS = """
    SELECT child.relname, parent.relname, array_to_string(pg_constraint.conkey, ','),
           array_to_string(pg_constraint.confkey, ',')
    FROM pg_catalog.pg_constraint
    JOIN pg_catalog.pg_class AS child ON child.oid = pg_constraint.conrelid
    LEFT JOIN pg_catalog.pg_class AS parent ON parent.oid = pg_constraint.confrelid
    WHERE pg_constraint.contype = '{kind}' ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A published data source, and a declaration for it.

    Attributes:
        rows: the number of rows of each table; empty if the file was not read.
        tasks: the tasks that refresh the data source in Tableau; None if this user may not list
            tasks.
        notes: phrases about the effects of an adoption, and about choices that the user must make.
        why_not: the reason if no declaration is possible; otherwise "".
        files: maps file names to texts: the declaration, and stubs of the models.
    """

    name: str
    link: str
    owner: str
    megabytes: int | None
    tasks: Sequence[RefreshTask] | None
    key: str = ""
    rows: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    why_not: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def proposals(
    site: TableauSite,
    hyper: Hyperd,
    project: str,
    declared: Mapping[str, PublishedDatasource],
    *,
    largest: int,
) -> Iterator[Proposal]:
    """Yield a proposal for each published data source in a project.

    Args:
        declared: the data sources of the code location, by asset key.
        largest: the largest file to download, in megabytes.

    Raises:
        RefusedError: the site has no such project.
    """
    published = site.in_project(site.project(project, create=False))
    tasks, owner = site.refresh_tasks(), cache(lambda luid: site.user(luid)[0])
    used = {
        used_key
        for datasource in declared.values()
        for used_key in (datasource.key, f"{datasource.key}_extract", *datasource.models)
    }
    # Choose the keys of data sources before the keys of models, so that no model takes the key of a
    # data source.
    base_keys = {item.luid: _shortened(asset_key_of(item.name)) for item in published}
    keys = {
        luid: _unused_key(base_key if base_key.strip("_") else f"datasource_{luid[:8]}", used)
        for luid, base_key in base_keys.items()
    }
    for remote in published:
        own = None if tasks is None else tasks.get(remote.luid, ())
        user = owner(remote.owner_id)
        proposal = Proposal(remote.name, remote.link or remote.luid, user, remote.megabytes, own)
        try:
            for key, other in declared.items():
                if (other.name.casefold(), other.project_path) == (remote.name.casefold(), project):
                    raise ValueError(f"it is declared already, as {key}")
            if remote.keys:
                raise ValueError(f'a pipeline publishes it (tag "{TAG_PREFIX}{min(remote.keys)}")')
            if (remote.megabytes or 0) > largest:
                raise ValueError(f"it has {remote.megabytes} MB: raise --max-mb to look into it")
            proposal_with_key = replace(proposal, key=keys[remote.luid])
            yield _with_declaration(site, hyper, remote, proposal_with_key, project, used)
        except (RefreshError, ValueError) as error:
            yield replace(proposal, why_not=str(error))


def _with_declaration(
    site: TableauSite,
    hyper: Hyperd,
    remote: RemoteDatasource,
    proposal: Proposal,
    project: str,
    used: set[str],
) -> Proposal:
    """Download a data source, and add its declaration to the proposal.

    Raises:
        ValueError: no declaration is possible; the message states why.
    """
    metadata, key = site.metadata(remote.luid), proposal.key
    try:
        with published_file(site, remote) as file, open_hyper(file, hyper=hyper) as opened:
            tables = _tables(opened)
            unique = {name: _key_of(opened, name, info) for name, info in tables.items()}
            edges = _relationships(opened, tables)
    except (HyperException, HyperFileError, ValueError) as error:
        live = f"a live connection to {metadata.source}, without data of its own"
        raise ValueError(live if metadata.source else str(error)) from error
    keys: dict[str, Any] = {"name": remote.name, "key": key, "project": project, "adopt": True}
    if key == asset_key_of(remote.name):
        del keys["key"]
    # If the only table is called "Extract", declare it under the data source's key, which says
    # more. A publish names a single table "Extract", whatever its declared name is.
    only = key if [*tables] == [EXTRACT_SCHEMA] else ""
    keys["tables"] = {}
    for table, info in tables.items():
        suffix = _shortened(asset_key_of(table)) if len(tables) > 1 else "rows"
        model = _unused_key(f"{key}_{suffix}", used)
        refresh = {"refresh": {"diff": {"key": unique[table]}}} if unique[table] else {}
        contract = {column: spark_type(type_) for column, type_ in info.columns.items()}
        contract = {column: type_ for column, type_ in contract.items() if type_}
        keys["tables"][only or table] = {"model": model, **refresh, "contract": contract}
    keys |= {"relationships": edges} if edges else {}
    types = {type_ for info in tables.values() for type_ in info.columns.values()}
    keys |= {"timestamps": "with_time_zone"} if "TIMESTAMPTZ" in types else {}
    keys |= {"floats": "real"} if "REAL" in types else {}
    trigger, notes = _trigger(proposal.tasks)
    keys |= {"trigger": trigger} if trigger else {}
    if "{{" in repr(keys):
        raise ValueError("it has a name with {{, which Dagster takes for a template")
    component = PublishedDatasource.from_attributes_dict(attributes=keys)
    notes = [*_adoption_notes(component, tables, metadata), *notes]
    rows = {name: info.rows for name, info in tables.items()}
    files = {"defs.yaml": _declaration(remote, keys, rows, notes), "models.py": _stubs(component)}
    return replace(proposal, rows=rows, notes=notes, files=files)


def _shortened(key: str) -> str:
    """Cut an asset key that would be too long as the name of a folder or as a part of a tag."""
    return key if len(key) <= _LONGEST_KEY else key[:_LONGEST_KEY].rstrip("_")


def _unused_key(key: str, used: set[str]) -> str:
    """Return the key, with a number if this key or the key with "_extract" is already used.

    Add the returned key, and the key of its extract, to `used`.
    """
    numbered = (f"{key}_{number}" if number > 1 else key for number in count(1))
    free = next(name for name in numbered if used.isdisjoint({name, f"{name}_extract"}))
    used |= {free, f"{free}_extract"}
    return free


def _tables(file: HyperFile) -> dict[str, TableInfo]:
    """Return the tables of a file by name, without their schemas.

    Raises:
        ValueError: two tables have the same name.
    """
    infos = file.tables()
    tables = {str(info.name.name.unescaped): info for info in infos}
    if len(tables) < len(infos):
        raise ValueError("it has two tables of one name, in different schemas")
    return tables


def _key_of(file: HyperFile, name: str, table: TableInfo) -> list[str]:
    """Return the primary key's columns; without a primary key, a unique column; otherwise []."""
    names = list(table.columns)
    for child, _, numbers, _ in file.connection.execute_list_query(_CONSTRAINTS.format(kind="p")):
        if child == name:
            return [names[int(number) - 1] for number in str(numbers).split(",")]
    candidates = [key for key in names if table.columns[key] in _KEY_TYPES and table.rows > 1]
    # First try columns with names like "id" or "key".
    for column in sorted(candidates, key=lambda text: not text.casefold().endswith(("id", "key"))):
        query = f"SELECT COUNT(DISTINCT {escape_name(column)}) FROM {table.name}"  # noqa: S608
        # If the query fails, for example because hyperd lacks memory, nothing is known about this
        # column. Try the next column.
        with suppress(HyperException):
            if file.connection.execute_scalar_query(query) == table.rows:
                return [column]
    return []


def _relationships(file: HyperFile, tables: Mapping[str, TableInfo]) -> list[dict[str, Any]]:
    """Derive the `relationships` of a declaration from the foreign keys of a file.

    Raises:
        ValueError: the foreign keys do not connect all tables.
    """
    columns = {name: list(info.columns) for name, info in tables.items()}
    edges = []
    for row in file.connection.execute_list_query(_CONSTRAINTS.format(kind="f")):
        many, one, *numbers = map(str, row)
        left, right = ([int(number) - 1 for number in part.split(",")] for part in numbers)
        on = {columns[many][a]: columns[one][b] for a, b in zip(left, right, strict=True)}
        edges.append({"from": many, "to": one, "on": on})
    if len(edges) < len(tables) - 1:
        listed = ", ".join(columns)
        raise ValueError(
            f"its file does not say how its tables {listed} are related: declare `relationships`"
        )
    return edges


def _trigger(tasks: Sequence[RefreshTask] | None) -> tuple[dict[str, str] | None, list[str]]:
    """Return a trigger at the times of one of the refresh tasks, and notes about the trigger.

    The trigger is None unless the times of a task are known, and a cron expression can express
    these times.
    """
    if tasks is None:
        return None, ["its refresh tasks are not known: this user may not list them"]
    due = next((task for task in tasks if task.cron), None)
    if due is None or due.cron is None:
        return None, [f"no cron expression can express {task.when}" for task in tasks]
    if due.ahead is None or due.ahead % 60:
        return None, [f"write the trigger for {due.when}: its time zone is not known"]
    # In the names of these time zones, the sign is reversed: Etc/GMT-2 is two hours ahead of UTC.
    zone = f"Etc/GMT{-due.ahead // 60:+}" if due.ahead else "UTC"
    notes = [f"its trigger is one of its {len(tasks)} tasks: {due.when}"] if len(tasks) > 1 else []
    if due.ahead:
        notes.append(f"{zone} has no daylight saving time: name your own `timezone`")
    return {"cron": due.cron, "timezone": zone}, notes


def _adoption_notes(
    component: PublishedDatasource, tables: Mapping[str, TableInfo], metadata: Metadata
) -> Iterator[str]:
    """Yield notes about the metadata and credentials that an adoption keeps or drops."""
    desired = {
        table.name: [*map(component.types.apply, table.contract)] for table in component.tables
    }
    published = {name: info.columns for name, info in tables.items()}
    changes = layout_changes(published, component, desired)
    schemas = (info.name.schema_name for info in tables.values())
    if others := {schema.name.unescaped if schema else "" for schema in schemas} - {EXTRACT_SCHEMA}:
        changes = [f'its schema "{min(others)}" would be "{EXTRACT_SCHEMA}"', *changes]
    work = edits_phrase(metadata) if metadata.work else "its metadata, which no user has edited"
    if changes:
        reasons = "; ".join(changes)
        yield f"an adoption cannot keep {work}, because {reasons}: it needs accept: [overwrite]"
    else:
        yield f"an adoption keeps {work}"
    if metadata.source and not changes:
        yield f"an extract of {metadata.source} takes no updates: each change is a full publish"
    if metadata.source:
        yield f"a publish drops the credentials for {metadata.source} that are embedded in it"


def _declaration(
    remote: RemoteDatasource, keys: Mapping[str, Any], rows: Mapping[str, int], notes: Sequence[str]
) -> str:
    """Return the text of defs.yaml, which has the notes as comments."""
    lines = [
        f"Proposed for the data source {remote.link or remote.luid}, which has "
        + ", ".join(f"{number:,} rows in {name}" for name, number in rows.items()),
        *notes,
        "each `key` was unique in the published file: is it meant to be?",
        "write the models in models.py; then `tableau-pipeline plan` shows what a refresh will do",
    ]
    comment = "".join(f"# * {' '.join(line.split())}\n" for line in lines)
    style = {"sort_keys": False, "allow_unicode": True, "width": 100, "default_flow_style": None}
    body = yaml.safe_dump(dict(keys), **style)
    indented = "".join(f"  {line}\n" for line in body.splitlines())
    return f"{_HEAD}{comment}\nattributes:\n{indented}"


def _stubs(component: PublishedDatasource) -> str:
    """Return the text of models.py, with a stub of each model."""
    text = '"""Replace each of these by an asset that returns the columns of its contract."""\n\n'
    text += "import dagster as dg\n"
    for table in component.tables:
        name = re.sub(r"^(?=\d)", "_", table.model)
        text += f'\n{name} = dg.AssetSpec("{table.model}")\n'
    return text

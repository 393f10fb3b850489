"""Propose declarations for data sources that others have published, to take them over."""

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
from tableau_pipeline.core.declaration import TAG_PREFIX, asset_key_of
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.compare import layout_changes, published_file
from tableau_pipeline.hyper.hyper_file import HyperFile, HyperFileError, TableInfo, open_hyper
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, spark_type
from tableau_pipeline.metadata.document import Metadata
from tableau_pipeline.publishing.rest import RefreshTask
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.plan import work_in

# The first document lets Dagster load the models beside it.
_HEAD = """type: dagster.DefsFolderComponent

---
type: tableau_pipeline.components.PublishedDatasource
"""
_KEYS = ("SMALLINT", "INTEGER", "BIGINT", "TEXT")
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
    """A published data source, and how to declare it.

    Attributes:
        rows: by table; empty if the file was not read.
        tasks: that refresh it in Tableau; None if this user may not list them.
        notes: what an adoption keeps, what it cannot keep, and what there is to decide.
        why_not: why there is no declaration; "" if there is one.
        files: what to write, by name: its declaration, and a place for its models.
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


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    schema: str
    columns: Mapping[str, str]
    rows: int
    key: Sequence[str]


def proposals(
    site: TableauSite,
    hyper: Hyperd,
    project: str,
    declared: Mapping[str, PublishedDatasource],
    *,
    largest: int,
) -> Iterator[Proposal]:
    """Yield a proposal for each data source of a project.

    Args:
        declared: those of the code location, by asset key.
        largest: megabytes of a file that is downloaded.

    Raises:
        RefusedError: there is no such project.
    """
    found = site.in_project(site.project(project, create=False))
    tasks, owner = site.refresh_tasks(), cache(lambda luid: site.user(luid)[0])
    used = {
        key for each in declared.values() for key in (each.key, f"{each.key}_extract", *each.models)
    }
    # Before any model, for none may have the key of another data source.
    keys = {each.luid: _unused(_key(each), used) for each in found}
    for each in found:
        own = None if tasks is None else tasks.get(each.luid, ())
        who = owner(each.owner_id)
        proposal = Proposal(each.name, each.link or each.luid, who, each.megabytes, own)
        try:
            for key, other in declared.items():
                if (other.name.casefold(), other.project_path) == (each.name.casefold(), project):
                    raise ValueError(f"it is declared already, as {key}")
            if ours := [tag for tag in each.tags if tag.startswith(TAG_PREFIX)]:
                raise ValueError(f'a pipeline publishes it (tag "{ours[0]}")')
            if (each.megabytes or 0) > largest:
                raise ValueError(f"it has {each.megabytes} MB: raise --max-mb to look into it")
            here = replace(proposal, key=keys[each.luid])
            yield _proposed(site, hyper, each, here, project, used)
        except (RefreshError, ValueError) as error:
            yield replace(proposal, why_not=str(error))


def _proposed(
    site: TableauSite,
    hyper: Hyperd,
    remote: RemoteDatasource,
    proposal: Proposal,
    project: str,
    used: set[str],
) -> Proposal:
    metadata, key = site.metadata(remote.luid), proposal.key
    try:
        with published_file(site, remote) as file, open_hyper(file, hyper=hyper) as opened:
            tables = [_table(opened, each) for each in opened.tables()]
            edges = _relationships(opened, tables)
    except (HyperException, HyperFileError, ValueError) as error:
        live = f"a live connection to {metadata.source}, without data of its own"
        raise ValueError(live if metadata.source else str(error)) from error
    keys: dict[str, Any] = {"name": remote.name, "key": key, "project": project, "adopt": True}
    if key == asset_key_of(remote.name):
        del keys["key"]
    ends = [asset_key_of(each.name) if len(tables) > 1 else "rows" for each in tables]
    models = [_unused(f"{key}_{end}", used) for end in ends]
    # A single table is published as "Extract", whatever its name.
    only = key if [each.name for each in tables] == [EXTRACT_SCHEMA] else ""
    declared = zip(tables, models, strict=True)
    keys["tables"] = {only or each.name: _declared(each, model) for each, model in declared}
    keys |= {"relationships": edges} if edges else {}
    types = {type_ for each in tables for type_ in each.columns.values()}
    keys |= {"timestamps": "with_time_zone"} if "TIMESTAMPTZ" in types else {}
    keys |= {"floats": "real"} if "REAL" in types else {}
    trigger, notes = _trigger(proposal.tasks)
    keys |= {"trigger": trigger} if trigger else {}
    if "{{" in repr(keys):
        raise ValueError("it has a name with {{, which Dagster takes for a template")
    component = PublishedDatasource.from_attributes_dict(attributes=keys)
    notes = [*_kept(component, tables, metadata), *notes]
    rows = {each.name: each.rows for each in tables}
    files = {"defs.yaml": _declaration(remote, keys, rows, notes), "models.py": _models(component)}
    return replace(proposal, rows=rows, notes=notes, files=files)


def _key(remote: RemoteDatasource) -> str:
    key = asset_key_of(remote.name)
    return key if key.strip("_") else f"datasource_{remote.luid[:8]}"


def _unused(key: str, used: set[str]) -> str:
    """Return an asset key, numbered if it or its extract's is taken, and take it."""
    numbered = (f"{key}_{number}" if number > 1 else key for number in count(1))
    free = next(each for each in numbered if used.isdisjoint({each, f"{each}_extract"}))
    used |= {free, f"{free}_extract"}
    return free


def _table(file: HyperFile, info: TableInfo) -> _Table:
    schema = info.name.schema_name.name.unescaped if info.name.schema_name else ""
    names, name = list(info.columns), info.name.name.unescaped
    declared = file.connection.execute_list_query(_CONSTRAINTS.format(kind="p"))
    keys = [str(numbers).split(",") for child, _, numbers, _ in declared if child == name]
    key = [names[int(each) - 1] for each in keys[-1]] if keys else []
    # Else the first column that identifies each row; those that are called so come first.
    may = [each for each in names if info.columns[each] in _KEYS and info.rows > 1 and not keys]
    for each in sorted(may, key=lambda each: not each.casefold().endswith(("id", "key"))):
        query = f"SELECT COUNT(DISTINCT {escape_name(each)}) FROM {info.name}"  # noqa: S608
        # The memory of hyperd may not suffice, which says nothing.
        with suppress(HyperException):
            if file.connection.execute_scalar_query(query) == info.rows:
                key = [each]
                break
    return _Table(name, schema, info.columns, info.rows, key)


def _relationships(file: HyperFile, tables: Sequence[_Table]) -> list[dict[str, Any]]:
    columns = {each.name: list(each.columns) for each in tables}
    if len(columns) < len(tables):
        raise ValueError("it has two tables of one name, in different schemas")
    found = []
    for row in file.connection.execute_list_query(_CONSTRAINTS.format(kind="f")):
        many, one, *numbers = map(str, row)
        left, right = ([int(each) - 1 for each in part.split(",")] for part in numbers)
        on = {columns[many][a]: columns[one][b] for a, b in zip(left, right, strict=True)}
        found.append({"from": many, "to": one, "on": on})
    if len(found) < len(tables) - 1:
        listed = ", ".join(columns)
        raise ValueError(
            f"its file does not say how its tables {listed} are related: declare `relationships`"
        )
    return found


def _declared(table: _Table, model: str) -> dict[str, Any]:
    contract = {
        name: spark for name, type_ in table.columns.items() if (spark := spark_type(type_))
    }
    refresh = {"refresh": {"diff": {"key": list(table.key)}}} if table.key else {}
    return {"model": model, **refresh, "contract": contract}


def _trigger(tasks: Sequence[RefreshTask] | None) -> tuple[dict[str, str] | None, list[str]]:
    """The trigger in place of refresh tasks, and what to know of it."""
    if tasks is None:
        return None, ["its refresh tasks are not known: this user may not list them"]
    due = next((each for each in tasks if each.cron), None)
    if due is None or due.cron is None:
        return None, [f"no cron expression says {each.when}" for each in tasks]
    if due.ahead is None or due.ahead % 60:
        return None, [f"write the trigger for {due.when}: its time zone is not known"]
    # In these names, the sign is that of the other direction.
    zone = f"Etc/GMT{-due.ahead // 60:+}" if due.ahead else "UTC"
    notes = [f"of its {len(tasks)} tasks, the trigger is {due.when}"] if len(tasks) > 1 else []
    if due.ahead:
        notes.append(f"the clock of {zone} knows no summer time: name your own `timezone`")
    return {"cron": due.cron, "timezone": zone}, notes


def _kept(
    component: PublishedDatasource, tables: Sequence[_Table], metadata: Metadata
) -> Iterator[str]:
    """What an adoption keeps, and what it cannot."""
    desired = {e.name: [*map(component.types.apply, e.contract)] for e in component.tables}
    found = {each.name: each.columns for each in tables}
    changes = layout_changes(found, component, desired)
    if others := {each.schema for each in tables} - {EXTRACT_SCHEMA}:
        changes = [f'its schema "{min(others)}" would be "{EXTRACT_SCHEMA}"', *changes]
    work = work_in(metadata) if metadata.work else "its metadata, in which nobody has made anything"
    if changes:
        yield f"an adoption cannot keep {work}, because {'; '.join(changes)}: it would ask first"
    else:
        yield f"an adoption keeps {work}"
    if metadata.source and not changes:
        yield f"an extract of {metadata.source} takes no updates: each change is a full publish"


def _declaration(
    remote: RemoteDatasource, keys: Mapping[str, Any], rows: Mapping[str, int], notes: Sequence[str]
) -> str:
    lines = [
        f"Proposed for the data source {remote.link or remote.luid}, which has "
        + ", ".join(f"{number:,} rows in {name}" for name, number in rows.items()),
        *notes,
        "each `key` was unique in the published file: is it meant to be?",
        "write the models in models.py; then `tableau-pipeline plan` tells what a refresh will do",
    ]
    comment = "".join(f"# * {' '.join(line.split())}\n" for line in lines)
    style = {"sort_keys": False, "allow_unicode": True, "width": 100, "default_flow_style": None}
    body = yaml.safe_dump(dict(keys), **style)
    indented = "".join(f"  {line}\n" for line in body.splitlines())
    return f"{_HEAD}{comment}\nattributes:\n{indented}"


def _models(component: PublishedDatasource) -> str:
    text = '"""Replace each of these by an asset that returns the columns of its contract."""\n\n'
    text += "import dagster as dg\n"
    for each in component.tables:
        name = re.sub(r"^(?=\d)", "_", each.model)
        text += f'\n{name} = dg.AssetSpec("{each.model}")\n'
    return text

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
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.identity import TAG_PREFIX, asset_key_of
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.schema import layout_changes
from tableau_pipeline.hyper.hyper_file import HyperFile, HyperFileError, TableInfo, open_hyper
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, spark_type
from tableau_pipeline.metadata.document import Metadata, work_in
from tableau_pipeline.publishing.packages import published_file
from tableau_pipeline.publishing.rest import RefreshTask
from tableau_pipeline.publishing.site import TableauSite

# The first document lets Dagster load the models beside it.
_HEAD = """type: dagster.DefsFolderComponent

---
type: tableau_pipeline.components.PublishedDatasource
"""
# Of two, the key of a model is made.
_LONGEST_KEY = 80
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
    named = {each.luid: _short(asset_key_of(each.name)) for each in found}
    keys = {
        luid: _unused(key if key.strip("_") else f"datasource_{luid[:8]}", used)
        for luid, key in named.items()
    }
    for each in found:
        own = None if tasks is None else tasks.get(each.luid, ())
        who = owner(each.owner_id)
        proposal = Proposal(each.name, each.link or each.luid, who, each.megabytes, own)
        try:
            for key, other in declared.items():
                if (other.name.casefold(), other.project_path) == (each.name.casefold(), project):
                    raise ValueError(f"it is declared already, as {key}")
            if each.keys:
                raise ValueError(f'a pipeline publishes it (tag "{TAG_PREFIX}{min(each.keys)}")')
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
            tables = _tables(opened)
            unique = {name: _key_of(opened, name, each) for name, each in tables.items()}
            edges = _relationships(opened, tables)
    except (HyperException, HyperFileError, ValueError) as error:
        live = f"a live connection to {metadata.source}, without data of its own"
        raise ValueError(live if metadata.source else str(error)) from error
    keys: dict[str, Any] = {"name": remote.name, "key": key, "project": project, "adopt": True}
    if key == asset_key_of(remote.name):
        del keys["key"]
    # A single table is published as "Extract", whatever its name.
    only = key if [*tables] == [EXTRACT_SCHEMA] else ""
    keys["tables"] = {}
    for name, each in tables.items():
        table = _short(asset_key_of(name)) if len(tables) > 1 else "rows"
        model = _unused(f"{key}_{table}", used)
        refresh = {"refresh": {"diff": {"key": unique[name]}}} if unique[name] else {}
        contract = {column: spark_type(type_) for column, type_ in each.columns.items()}
        contract = {column: type_ for column, type_ in contract.items() if type_}
        keys["tables"][only or name] = {"model": model, **refresh, "contract": contract}
    keys |= {"relationships": edges} if edges else {}
    types = {type_ for each in tables.values() for type_ in each.columns.values()}
    keys |= {"timestamps": "with_time_zone"} if "TIMESTAMPTZ" in types else {}
    keys |= {"floats": "real"} if "REAL" in types else {}
    trigger, notes = _trigger(proposal.tasks)
    keys |= {"trigger": trigger} if trigger else {}
    if "{{" in repr(keys):
        raise ValueError("it has a name with {{, which Dagster takes for a template")
    component = PublishedDatasource.from_attributes_dict(attributes=keys)
    notes = [*_kept(component, tables, metadata), *notes]
    rows = {name: each.rows for name, each in tables.items()}
    files = {"defs.yaml": _declaration(remote, keys, rows, notes), "models.py": _models(component)}
    return replace(proposal, rows=rows, notes=notes, files=files)


def _short(key: str) -> str:
    """Cut an asset key if it is too long: it names a folder, and is part of a tag."""
    return key if len(key) <= _LONGEST_KEY else key[:_LONGEST_KEY].rstrip("_")


def _unused(key: str, used: set[str]) -> str:
    """Return an asset key, numbered if it or its extract's is taken, and take it."""
    numbered = (f"{key}_{number}" if number > 1 else key for number in count(1))
    free = next(each for each in numbered if used.isdisjoint({each, f"{each}_extract"}))
    used |= {free, f"{free}_extract"}
    return free


def _tables(file: HyperFile) -> dict[str, TableInfo]:
    found = file.tables()
    tables = {str(each.name.name.unescaped): each for each in found}
    if len(tables) < len(found):
        raise ValueError("it has two tables of one name, in different schemas")
    return tables


def _key_of(file: HyperFile, name: str, table: TableInfo) -> list[str]:
    """Return the primary key; else the first column that identifies each row, or nothing."""
    names = list(table.columns)
    for child, _, numbers, _ in file.connection.execute_list_query(_CONSTRAINTS.format(kind="p")):
        if child == name:
            return [names[int(each) - 1] for each in str(numbers).split(",")]
    may = [each for each in names if table.columns[each] in _KEYS and table.rows > 1]
    # Those that are called so come first.
    for each in sorted(may, key=lambda each: not each.casefold().endswith(("id", "key"))):
        query = f"SELECT COUNT(DISTINCT {escape_name(each)}) FROM {table.name}"  # noqa: S608
        # The memory of hyperd may not suffice, which says nothing.
        with suppress(HyperException):
            if file.connection.execute_scalar_query(query) == table.rows:
                return [each]
    return []


def _relationships(file: HyperFile, tables: Mapping[str, TableInfo]) -> list[dict[str, Any]]:
    columns = {name: list(each.columns) for name, each in tables.items()}
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
    component: PublishedDatasource, tables: Mapping[str, TableInfo], metadata: Metadata
) -> Iterator[str]:
    """What an adoption keeps, and what it cannot."""
    desired = {e.name: [*map(component.types.apply, e.contract)] for e in component.tables}
    found = {name: each.columns for name, each in tables.items()}
    changes = layout_changes(found, component, desired)
    schemas = (each.name.schema_name for each in tables.values())
    if others := {each.name.unescaped if each else "" for each in schemas} - {EXTRACT_SCHEMA}:
        changes = [f'its schema "{min(others)}" would be "{EXTRACT_SCHEMA}"', *changes]
    work = work_in(metadata) if metadata.work else "its metadata, in which nobody has made anything"
    if changes:
        why = "; ".join(changes)
        yield f"an adoption cannot keep {work}, because {why}: it needs accept: [overwrite]"
    else:
        yield f"an adoption keeps {work}"
    if metadata.source and not changes:
        yield f"an extract of {metadata.source} takes no updates: each change is a full publish"
    if metadata.source:
        yield f"a publish drops the credentials for {metadata.source} that are embedded in it"


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

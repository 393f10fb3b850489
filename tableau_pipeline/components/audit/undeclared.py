"""Data sources on the site that carry our tag, and that this code location does not declare."""

from collections.abc import Collection
from dataclasses import dataclass

import dagster as dg

from tableau_pipeline.components.dagster_journal import DagsterJournal
from tableau_pipeline.core.checkpoint import Closing
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.core.server import RemoteDatasource, Server
from tableau_pipeline.refresh.recover.history import read_history


@dataclass(frozen=True, slots=True)
class Undeclared:
    """A data source without a declaration here; `note` says who may publish it."""

    datasource: RemoteDatasource
    note: str


def undeclared(
    context: dg.OpExecutionContext, server: Server, declared: Collection[str]
) -> list[Undeclared]:
    """Return the data sources of the site with the tags of other keys than the declared ones.

    Raises:
        RefreshError: the server did not answer.
    """
    found = []
    for datasource in server.tagged(TAG_PREFIX):
        tags = sorted(tag for tag in datasource.tags if tag.startswith(TAG_PREFIX))
        keys = [tag.removeprefix(TAG_PREFIX) for tag in tags]
        if not set(keys) & set(declared):
            notes = (_publisher(context, datasource, key) for key in keys)
            found.append(Undeclared(datasource, " ".join(notes)))
    return sorted(found, key=lambda each: (each.datasource.name, each.datasource.luid))


def _publisher(context: dg.OpExecutionContext, datasource: RemoteDatasource, key: str) -> str:
    """Return who publishes it, as far as its tags and the records of this instance show it."""
    journal = DagsterJournal(context, dg.AssetKey.from_user_string(key))
    instances = sorted(tag for tag in datasource.tags if tag.startswith(INSTANCE_TAG_PREFIX))
    is_ours = f"{INSTANCE_TAG_PREFIX}{journal.instance}" in instances
    tag = "the tag of this instance" if is_ours else ", ".join(instances) or "no instance's tag"
    records = journal.records()
    record = read_history(records).checkpoint
    # A data source of another deployment may have the same key.
    if record is None or record.luid != datasource.luid:
        return f'Its key is "{key}", with {tag}. Nothing in this instance has refreshed it.'
    ends = [each for each in records if isinstance(each, Closing) and each.checkpoint]
    if not ends:
        return f'Its key is "{key}", with {tag}. This instance has refreshed it.'
    last = max(ends, key=lambda each: each.refresh)
    when = f"{last.closed_at:%Y-%m-%d %H:%M} UTC"
    by = _location(context, last.run_id)
    return f'Its key is "{key}", with {tag}. This instance last refreshed it at {when}{by}.'


def _location(context: dg.OpExecutionContext, run_id: str) -> str:
    """Return which code location the run was of; "" if that is not known any more."""
    run = context.instance.get_run_by_id(run_id)
    if run is None or run.remote_job_origin is None:
        return ""
    return f', from the code location "{run.remote_job_origin.location_name}"'

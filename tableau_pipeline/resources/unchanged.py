"""Let a model keep its last snapshot, without Spark, if nothing came in since."""

import hashlib
import json
from collections.abc import Mapping

import dagster as dg
from dagster._core.definitions.data_version import DEFAULT_DATA_VERSION
from dagster._core.errors import DagsterInvalidPropertyError
from dagster._core.execution.context.system import StepExecutionContext

from tableau_pipeline.core.snapshot import Origin, Snapshot
from tableau_pipeline.resources.snapshots import SnapshotIOManager, notes_of

# In the run config of a model, `force: true` runs it in any case.
_FORCE = "force"


def unchanged(context: dg.AssetExecutionContext, source_version: str) -> bool:
    """Return whether the last snapshot of a model still holds; then the model returns None.

    It holds if the source version, the code version, the run config and the partitions definition
    of the model, and the data versions of its upstream assets are as they were when it was written.
    All partitions of the run must hold. Otherwise, the rows that the model returns are stored with
    this source version.

    A model without a code version always runs. So does one whose run config says `force: true`.

    Args:
        source_version: a text that changes whenever the sources do, such as `files_version`. Find
            it out before the sources are read.

    Raises:
        TypeError: the IO manager of the model is not a `SnapshotIOManager`.
    """
    try:
        step = context.op_execution_context.get_step_execution_context()
    except DagsterInvalidPropertyError:  # The model is called as a plain function, as in a test.
        return False
    notes = notes_of(step)
    notes.origin = _origin(context, step, source_version)
    stored = _stored(context)
    reason = _reason_to_run(context, notes.origin, stored)
    notes.unchanged = None if reason else stored
    model = context.asset_key.to_user_string()
    if reason:
        context.log.info('Model "%s" runs: %s', model, reason)
    else:
        context.log.info('Model "%s" is unchanged: its sources are still %s', model, source_version)
    return not reason


def _origin(
    context: dg.AssetExecutionContext, step: StepExecutionContext, source_version: str
) -> Origin:
    key = context.asset_key
    # Whether the model was forced says nothing about its rows.
    config = {name: value for name, value in _config(context).items() if name != _FORCE}
    text = json.dumps(config, sort_keys=True, default=str)
    definition = context.assets_def.partitions_def
    parents = step.job_def.asset_layer.get(key).parent_keys
    return Origin(
        source_version=source_version,
        code_version=context.assets_def.code_versions_by_key[key],
        # A digest, because run config may hold a password.
        run_config=hashlib.sha256(text.encode()).hexdigest()[:16] if config else None,
        upstream={each.to_user_string(): _data_version(step, each) for each in parents},
        partitions=definition.get_serializable_unique_identifier() if definition else None,
    )


def _config(context: dg.AssetExecutionContext) -> Mapping[str, object]:
    """Return the run config of the model; one that is a single value gets a name."""
    config = context.op_execution_context.op_config or {}
    return config if isinstance(config, Mapping) else {"": config}


def _data_version(step: StepExecutionContext, upstream: dg.AssetKey) -> str:
    """Return the data version of what the step loads, and not of what is written meanwhile."""
    if loaded := notes_of(step).loaded.get(upstream):
        return loaded.data_version
    # Dagster looked it up before it loaded any input.
    known = step.maybe_fetch_and_get_input_asset_version_info(upstream)
    if known is None:
        return DEFAULT_DATA_VERSION.value
    return known.data_version.value if known.data_version else f"event {known.storage_id}"


def _stored(context: dg.AssetExecutionContext) -> Snapshot | None:
    """Return the newest version of the model, or the partitions of this run in it."""
    step, key = context.op_execution_context, context.asset_key
    output = step.op_def.output_def_named(step.output_for_asset_key(key))
    manager = getattr(context.resources, output.io_manager_key)
    if not isinstance(manager, SnapshotIOManager):
        raise TypeError(
            f'Model "{key.to_user_string()}" has the IO manager {output.io_manager_key}, which '
            'stores no snapshots: set io_manager_key="snapshots", or do not ask whether it is '
            "unchanged."
        )
    definition = context.assets_def.partitions_def
    found = manager.snapshot(key.to_user_string(), definition)
    partitions = set(context.partition_keys) if definition else {None}
    if found is None or not partitions.issubset(part.partition for part in found.parts):
        return None
    return found.only(partitions) if definition else found


def _reason_to_run(
    context: dg.AssetExecutionContext, now: Origin, stored: Snapshot | None
) -> str | None:
    if _config(context).get(_FORCE):
        return f"its run config says {_FORCE}"
    if now.code_version is None:
        return (
            "without a code_version, a change of its code does not show; "
            'declare one, as in @dg.asset(code_version="1")'
        )
    if stored is None:
        return "it is not stored yet"
    for part in stored.parts:
        before = part.origin
        if before is None:
            return f"version {part.version} does not say what it was computed from"
        if before.source_version != now.source_version:
            return f"its sources were {before.source_version}, and are {now.source_version}"
        if before.code_version != now.code_version:
            return f"its code version was {before.code_version}, and is {now.code_version}"
        if before.upstream != now.upstream:
            different = sorted({key for key, _ in before.upstream.items() ^ now.upstream.items()})
            return f"upstream of it, {', '.join(different)} changed"
        if before != now:
            return "its run config or its partitions definition changed"
    names = [file.name for part in stored.parts for file in part.files]
    missing = stored.folder.missing(names)
    return f"{missing[0]} is gone" if missing else None

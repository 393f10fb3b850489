"""Which models have rows that a blocking check rejected, as Dagster has recorded it.

A check that did not run, or came to no result, rejects nothing: a model may be run without its
checks, and a check may be younger than the rows.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import dagster as dg

from tableau_pipeline.dagster_internals import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
    AssetGraph,
    check_history,
    newest_by_partition,
    newest_results,
)

# How many executions of the check of a partitioned model are looked at.
_LISTED = 1000


def rejected_models(
    instance: dg.DagsterInstance, graph: AssetGraph, models: Collection[str]
) -> Mapping[str, Sequence[str]]:
    """Return the names of the blocking checks that rejected the newest rows, by model.

    While all checks pass, it takes a few reads however many models there are.
    """
    keys = {dg.AssetKey.from_user_string(model) for model in models}
    checks = {each for each in graph.get_check_keys_for_assets(keys) if graph.get(each).blocking}
    known = {key for key in keys if graph.has(key)}
    foreign = {key for key in keys if key not in known or graph.get(key).is_external}
    checks |= set(_failed_elsewhere(instance, foreign))
    results = newest_results(instance, checks)
    parted = {key for key in known if graph.get(key).is_partitioned}
    found: dict[str, list[str]] = defaultdict(list)
    for check in sorted(checks & results.keys()):
        passed = results[check].status is AssetCheckExecutionRecordStatus.SUCCEEDED
        # The last execution says nothing of other partitions.
        is_parted = check.asset_key in parted
        if (is_parted or not passed) and _rejects(instance, check, is_parted=is_parted):
            found[check.asset_key.to_user_string()].append(check.name)
    return found


def rejected_since(
    instance: dg.DagsterInstance, rejected: Mapping[str, Sequence[str]]
) -> Mapping[str, float]:
    """Return when the newest rows of each model were written, in seconds since 1970.

    For a table of a lake that no sensor watches, it is when a check has last looked at it.

    Args:
        rejected: as `rejected_models` returns them.
    """
    if not rejected:
        return {}
    keys = {dg.AssetKey.from_user_string(model): checks for model, checks in rejected.items()}
    checks = [dg.AssetCheckKey(key, name) for key, names in keys.items() for name in names]
    results = newest_results(instance, checks)
    since = {check.asset_key: result.create_timestamp for check, result in results.items()}
    for record in instance.get_asset_records([*keys]):
        if newest := record.asset_entry.last_materialization_record:
            since[record.asset_entry.asset_key] = newest.timestamp
    return {key.to_user_string(): at for key, at in since.items()}


def _failed_elsewhere(
    instance: dg.DagsterInstance, models: Collection[dg.AssetKey]
) -> Iterator[dg.AssetCheckKey]:
    """Yield the blocking checks in failed runs of models of which this location knows no checks."""
    records = instance.get_asset_records([*models]) if models else []
    newest = (each.asset_entry.last_materialization_record for each in records)
    runs = {each.run_id for each in newest if each and each.run_id}
    if not runs:
        return
    # A failed blocking check fails its run.
    failed = dg.RunsFilter(run_ids=[*runs], statuses=[dg.DagsterRunStatus.FAILURE])
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    for run in instance.get_runs(failed):
        for event in instance.all_logs(run.run_id, of_type=kind):
            found = event.dagster_event and event.dagster_event.asset_check_evaluation_data
            if found and found.blocking and found.asset_key in models:
                yield found.asset_check_key


def _rejects(instance: dg.DagsterInstance, check: dg.AssetCheckKey, *, is_parted: bool) -> bool:
    """Whether the last result of a check on rows that the model still has is a failure."""
    results = check_history(instance, check, limit=_LISTED if is_parted else 1)
    # Most partitioned models have none.
    if not any(map(_is_failure, results)):
        return False
    held = _held(instance, check.asset_key, is_parted=is_parted)
    if not held:
        # A table of a lake that no sensor watches.
        return _is_failure(results[0])
    last = (next((e for e in results if _judges(e, rows)), None) for rows in held)
    return any(each and _is_failure(each) for each in last)


def _held(
    instance: dg.DagsterInstance, model: dg.AssetKey, *, is_parted: bool
) -> Sequence[dg.EventLogRecord]:
    """Return the newest materialization of a model, or of each of its partitions."""
    if not is_parted:
        records = instance.get_asset_records([model])
        newest = [each.asset_entry.last_materialization_record for each in records]
        return [each for each in newest if each]
    ids = newest_by_partition(instance, model, dg.DagsterEventType.ASSET_MATERIALIZATION)
    wanted = dg.AssetRecordsFilter(asset_key=model, storage_ids=[*ids.values()])
    return instance.fetch_materializations(wanted, limit=len(ids)).records if ids else []


def _is_failure(result: AssetCheckExecutionRecord) -> bool:
    # A warning stops nothing in Dagster either.
    found = result.evaluation
    return bool(found and not found.passed and found.severity is dg.AssetCheckSeverity.ERROR)


def _judges(result: AssetCheckExecutionRecord, rows: dg.EventLogRecord) -> bool:
    """Whether a check looked at what this materialization has written."""
    # A check in the step of its model ends before the materialization is recorded.
    if result.run_id and result.run_id == rows.run_id:
        return True
    target = result.evaluation.target_materialization_data if result.evaluation else None
    if target:
        return target.storage_id == rows.storage_id
    return result.event is not None and result.event.timestamp > rows.timestamp

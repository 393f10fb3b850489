"""Find the models whose newest rows a blocking check has rejected.

Only a failed check rejects rows. A check without a result rejects nothing, because a user may run a
model without checks, and a check may be newer than the rows.
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

# Read this many of the newest results of a check if its model is partitioned.
_MAX_RESULTS = 1000


def rejected_models(
    instance: dg.DagsterInstance, graph: AssetGraph, models: Collection[str]
) -> Mapping[str, Sequence[str]]:
    """Map each model whose newest rows were rejected to the blocking checks that rejected them.

    If all checks pass, a few reads suffice for any number of models without partitions.
    """
    keys = {dg.AssetKey.from_user_string(model) for model in models}
    checks = {
        candidate
        for candidate in graph.get_check_keys_for_assets(keys)
        if graph.get(candidate).blocking
    }
    defined = {key for key in keys if graph.has(key)}
    foreign = {key for key in keys if key not in defined or graph.get(key).is_external}
    checks |= set(_foreign_failures(instance, foreign))
    results = newest_results(instance, checks)
    partitioned = {key for key in defined if graph.get(key).is_partitioned}
    rejections: dict[str, list[str]] = defaultdict(list)
    for check in sorted(checks & results.keys()):
        passed = results[check].status is AssetCheckExecutionRecordStatus.SUCCEEDED
        # The last result for a partitioned model covers only one partition, so read more results.
        is_partitioned = check.asset_key in partitioned
        if (is_partitioned or not passed) and _rejects(
            instance, check, is_partitioned=is_partitioned
        ):
            rejections[check.asset_key.to_user_string()].append(check.name)
    return rejections


def newest_row_times(
    instance: dg.DagsterInstance, rejected: Mapping[str, Sequence[str]]
) -> Mapping[str, float]:
    """Map each rejected model to the time of its newest rows, in seconds since 1970.

    A lake table that no sensor watches has no materialization, so use the time of a check's last
    result.

    Args:
        rejected: maps models to names of checks; the result of `rejected_models`.
    """
    if not rejected:
        return {}
    keys = {dg.AssetKey.from_user_string(model): checks for model, checks in rejected.items()}
    checks = [dg.AssetCheckKey(key, name) for key, names in keys.items() for name in names]
    results = newest_results(instance, checks)
    # Prefer the event's time, because the result's time may lack fractions of seconds.
    since = {
        check.asset_key: result.event.timestamp if result.event else result.create_timestamp
        for check, result in results.items()
    }
    for record in instance.get_asset_records([*keys]):
        if newest := record.asset_entry.last_materialization_record:
            since[record.asset_entry.asset_key] = newest.timestamp
    return {key.to_user_string(): time for key, time in since.items()}


def _foreign_failures(
    instance: dg.DagsterInstance, models: Collection[dg.AssetKey]
) -> Iterator[dg.AssetCheckKey]:
    """Yield the blocking checks in the failed runs that made the newest rows of these models.

    The asset graph may lack these checks, because no step of this code location makes the models.
    """
    records = instance.get_asset_records([*models]) if models else []
    newest = (record.asset_entry.last_materialization_record for record in records)
    runs = {entry.run_id for entry in newest if entry and entry.run_id}
    if not runs:
        return
    # Read only failed runs, because a failed blocking check fails its run.
    failed = dg.RunsFilter(run_ids=[*runs], statuses=[dg.DagsterRunStatus.FAILURE])
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    for run in instance.get_runs(failed):
        for event in instance.all_logs(run.run_id, of_type=kind):
            evaluation = event.dagster_event and event.dagster_event.asset_check_evaluation_data
            if evaluation and evaluation.blocking and evaluation.asset_key in models:
                yield evaluation.asset_check_key


def _rejects(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, *, is_partitioned: bool
) -> bool:
    """Whether a check has rejected the newest rows of its model, or of any of its partitions."""
    results = check_history(instance, check, limit=_MAX_RESULTS if is_partitioned else 1)
    # Stop here in the usual case, because most checks have never failed.
    if not any(map(_is_failure, results)):
        return False
    materializations = _newest_materializations(
        instance, check.asset_key, is_partitioned=is_partitioned
    )
    if not materializations:
        # A lake table that no sensor watches has no materialization, so the newest result counts.
        return _is_failure(results[0])
    newest_results_of_each = (
        next((result for result in results if _covers(result, materialization)), None)
        for materialization in materializations
    )
    return any(result and _is_failure(result) for result in newest_results_of_each)


def _newest_materializations(
    instance: dg.DagsterInstance, model: dg.AssetKey, *, is_partitioned: bool
) -> Sequence[dg.EventLogRecord]:
    """Return the newest materialization of a model, or of each of its partitions."""
    if not is_partitioned:
        records = instance.get_asset_records([model])
        newest = [record.asset_entry.last_materialization_record for record in records]
        return [materialization for materialization in newest if materialization]
    ids = newest_by_partition(instance, model, dg.DagsterEventType.ASSET_MATERIALIZATION)
    filter_ = dg.AssetRecordsFilter(asset_key=model, storage_ids=[*ids.values()])
    return instance.fetch_materializations(filter_, limit=len(ids)).records if ids else []


def _is_failure(result: AssetCheckExecutionRecord) -> bool:
    # Like Dagster, ignore a failed check that only warns.
    evaluation = result.evaluation
    return bool(
        evaluation and not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.ERROR
    )


def _covers(result: AssetCheckExecutionRecord, materialization: dg.EventLogRecord) -> bool:
    """Whether a check result is about the rows that a materialization wrote."""
    # First compare the runs, not the times: if a step both makes and checks a model, the check ends
    # before Dagster records the materialization.
    if result.run_id and result.run_id == materialization.run_id:
        return True
    target = result.evaluation.target_materialization_data if result.evaluation else None
    if target:
        return target.storage_id == materialization.storage_id
    return result.event is not None and result.event.timestamp > materialization.timestamp

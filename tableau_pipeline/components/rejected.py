"""Find, in Dagster's records, the models whose newest rows a blocking check has rejected.

A check that did not run, or has no result, rejects nothing: a user may run a model without its
checks, and a check may be newer than the rows.
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

# How many of the newest results of a check are read if its model is partitioned.
_MAX_RESULTS = 1000


def rejected_models(
    instance: dg.DagsterInstance, graph: AssetGraph, models: Collection[str]
) -> Mapping[str, Sequence[str]]:
    """Return, for each model with rejected newest rows, the blocking checks that rejected them.

    While all checks pass, a few reads suffice for any number of models.
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
        # If the model is partitioned, its last result is about one partition: read more results.
        is_partitioned = check.asset_key in partitioned
        if (is_partitioned or not passed) and _rejects(
            instance, check, is_partitioned=is_partitioned
        ):
            rejections[check.asset_key.to_user_string()].append(check.name)
    return rejections


def newest_row_times(
    instance: dg.DagsterInstance, rejected: Mapping[str, Sequence[str]]
) -> Mapping[str, float]:
    """Return when the newest rows of each model were written, in seconds since 1970.

    For a lake table that no sensor watches, it is the time of the last check.

    Args:
        rejected: the names of checks by model, from `rejected_models`.
    """
    if not rejected:
        return {}
    keys = {dg.AssetKey.from_user_string(model): checks for model, checks in rejected.items()}
    checks = [dg.AssetCheckKey(key, name) for key, names in keys.items() for name in names]
    results = newest_results(instance, checks)
    # The time of the event has fractions of seconds; that of the result may have none.
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
    """Yield the blocking checks that failed in other locations, from the failed runs of models."""
    records = instance.get_asset_records([*models]) if models else []
    newest = (record.asset_entry.last_materialization_record for record in records)
    runs = {entry.run_id for entry in newest if entry and entry.run_id}
    if not runs:
        return
    # A failed blocking check fails its run.
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
    """Whether a check failed when it last checked rows that the model still has."""
    results = check_history(instance, check, limit=_MAX_RESULTS if is_partitioned else 1)
    # Read no more in the usual case: most checks of partitioned models have never failed.
    if not any(map(_is_failure, results)):
        return False
    materializations = _newest_materializations(
        instance, check.asset_key, is_partitioned=is_partitioned
    )
    if not materializations:
        # The model is a lake table that no sensor watches.
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
    # As in Dagster, a failed check that only warns stops nothing.
    evaluation = result.evaluation
    return bool(
        evaluation and not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.ERROR
    )


def _covers(result: AssetCheckExecutionRecord, materialization: dg.EventLogRecord) -> bool:
    """Whether a result is about the rows that a materialization has written."""
    # A check in the step of its model ends before the materialization is recorded.
    if result.run_id and result.run_id == materialization.run_id:
        return True
    target = result.evaluation.target_materialization_data if result.evaluation else None
    if target:
        return target.storage_id == materialization.storage_id
    return result.event is not None and result.event.timestamp > materialization.timestamp

"""Rows that a blocking check has rejected, and refreshes that would publish these rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.components.rejected import rejected_models
from tableau_pipeline_tests.components.support.location import MODEL, Location, failure

DAYS = dg.StaticPartitionsDefinition(["monday", "tuesday"])


class Outcome:
    """The next result of the check."""

    passed = False
    severity = dg.AssetCheckSeverity.ERROR


@pytest.fixture
def outcome() -> Outcome:
    return Outcome()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def check_of(
    asset: dg.AssetKey | dg.AssetsDefinition, outcome: Outcome, *, blocking: bool = True
) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=asset, blocking=blocking)
    def plausible() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=outcome.passed, severity=outcome.severity)

    return plausible


def orders_of(partitions: dg.PartitionsDefinition | None = None) -> dg.AssetsDefinition:
    @dg.asset(partitions_def=partitions)
    def orders() -> None:
        """A model; its rows do not matter here."""

    return orders


class Models:
    """A code location with the model `orders`."""

    def __init__(self, instance: dg.DagsterInstance, *assets: Any, checks: Sequence[Any]) -> None:
        self.instance = instance
        self.definitions = dg.Definitions(
            assets=assets, asset_checks=checks, executor=dg.in_process_executor
        )
        self.graph = self.definitions.resolve_asset_graph()

    def run(self, selected: Any = None, *, partition: str | None = None) -> None:
        """Run all assets and checks, or a selection of them."""
        job = dg.define_asset_job("run", selected or dg.AssetSelection.all())
        definitions = dg.Definitions.merge(self.definitions, dg.Definitions(jobs=[job]))
        definitions.resolve_job_def("run").execute_in_process(
            instance=self.instance, partition_key=partition, raise_on_error=False
        )

    @property
    def rejected(self) -> dict[str, list[str]]:
        found = rejected_models(self.instance, self.graph, ["orders"])
        return {model: [*names] for model, names in found.items()}


MODEL_ALONE = dg.AssetSelection.assets("orders").without_checks()
CHECK_ALONE = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey("orders"), "plausible"))
REJECTED = {"orders": ["plausible"]}


def test_the_newest_result_on_the_newest_rows_counts(
    instance: dg.DagsterInstance, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: rejected rows are published, or good or unchecked rows stay unpublished."""
    orders = orders_of()
    models = Models(instance, orders, checks=[check_of(orders, outcome)])
    assert models.rejected == {}
    models.run()
    assert models.rejected == REJECTED
    outcome.passed = True
    models.run(CHECK_ALONE)
    assert models.rejected == {}
    outcome.passed = False
    models.run(CHECK_ALONE)
    assert models.rejected == REJECTED
    models.run(MODEL_ALONE)
    assert models.rejected == {}
    outcome.severity = dg.AssetCheckSeverity.WARN
    models.run()
    assert models.rejected == {}
    # A check that raises an error rejects nothing.
    monkeypatch.delattr(Outcome, "passed")
    del outcome.passed
    models.run()
    assert models.rejected == {}


def test_a_check_that_blocks_nothing(instance: dg.DagsterInstance, outcome: Outcome):
    """Prevents: a check that only informs stops refreshes."""
    orders = orders_of()
    models = Models(instance, orders, checks=[check_of(orders, outcome, blocking=False)])
    models.run()
    assert models.rejected == {}


def test_each_partition_counts(instance: dg.DagsterInstance, outcome: Outcome):
    """Prevents: a rejected day is published because the check passed on the next day."""
    orders = orders_of(DAYS)
    models = Models(instance, orders, checks=[check_of(orders, outcome)])
    models.run(partition="monday")
    outcome.passed = True
    models.run(partition="tuesday")
    assert models.rejected == REJECTED
    models.run(partition="monday")
    assert models.rejected == {}


def test_a_check_in_the_step_of_its_model(instance: dg.DagsterInstance, outcome: Outcome):
    """Prevents: the result of a check in its model's step counts for the earlier rows."""

    @dg.asset(check_specs=[dg.AssetCheckSpec("plausible", asset="orders", blocking=True)])
    def orders() -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        yield dg.MaterializeResult()
        yield dg.AssetCheckResult(passed=outcome.passed)

    models = Models(instance, orders, checks=[])
    for passed in (True, False):
        outcome.passed = passed
        models.run()
        assert models.rejected == ({} if passed else REJECTED)


def test_a_model_of_another_location(instance: dg.DagsterInstance, outcome: Outcome):
    """Prevents: rows are published that a check in another location has rejected."""
    orders = orders_of()
    there = Models(instance, orders, checks=[check_of(orders, outcome)])
    here = Models(instance, dg.AssetSpec("orders"), checks=[])
    there.run()
    assert here.rejected == REJECTED
    outcome.passed = True
    there.run(CHECK_ALONE)
    assert here.rejected == {}


def test_a_table_of_a_lake(instance: dg.DagsterInstance, outcome: Outcome):
    """Prevents: a refresh ignores the check of a table that Dagster does not make."""
    checks = [check_of(dg.AssetKey("orders"), outcome)]
    models = Models(instance, dg.AssetSpec("orders"), checks=checks)
    models.run(CHECK_ALONE)
    assert models.rejected == REJECTED
    instance.report_runless_asset_event(dg.AssetMaterialization("orders"))
    assert models.rejected == {}


@pytest.mark.slow
def test_no_trigger_publishes_rejected_rows(location: Location, outcome: Outcome):
    """Prevents: a refresh by hand or by cron publishes rows that a check has rejected."""
    model = dg.AssetKey.from_user_string(MODEL)
    location.checks = [check_of(model, outcome)]
    location.model()
    found = dg.AssetCheckEvaluation(model, "plausible", passed=False, blocking=True)
    location.instance.report_runless_asset_event(found)
    refused = failure(location.refresh("checked"))
    assert f'the blocking check "plausible" of the model "{MODEL}" rejected' in refused
    # The last line is the config for the launchpad.
    assert "accept: [checks]" in refused.splitlines()[-1]
    assert location.refresh("checked", accept=["checks"]).success

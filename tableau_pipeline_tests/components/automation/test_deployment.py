import dagster as dg
import pytest

from tableau_pipeline.components import FileDrop
from tableau_pipeline.components.automation import dbt_sensors, refresh_schedules
from tableau_pipeline_tests.components.support.declarations import declared


@pytest.mark.parametrize(
    ("value", "status"), [(None, "STOPPED"), ("", "STOPPED"), ("off", "STOPPED"), ("on", "RUNNING")]
)
def test_one_variable_for_every_trigger(
    monkeypatch: pytest.MonkeyPatch, value: str | None, status: str
):
    """Prevents: a kind of trigger that runs on laptops, or that production has to click for."""
    if value is not None:
        monkeypatch.setenv("PIPELINE_TRIGGERS", value)
    context = dg.ComponentTree.for_test().load_context
    found = [
        *refresh_schedules([declared(trigger={"cron": "0 6 * * *"})]),
        *dbt_sensors([declared(trigger={"dbt": "target/run_results.json"})]),
        *(
            FileDrop.from_attributes_dict(attributes={"folder": "/srv"}).build_defs(context).sensors
            or ()
        ),
    ]
    assert [each.default_status.name for each in found] == [status] * 3

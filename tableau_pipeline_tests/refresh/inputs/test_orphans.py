import logging
from dataclasses import replace

import pytest

from tableau_pipeline.core.policies import Diff
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


@pytest.mark.slow
def test_rows_without_a_partner_are_a_warning(star: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: dashboards with blanks that nobody was told of, or a refresh refused for them."""
    star.model("airlines", airlines("UA"))
    with caplog.at_level(logging.WARNING):
        assert star.run().orphans == {"flights -> airlines": 4}
    assert "Relationship flights -> airlines: 4 rows have no partner" in str(caplog.messages)
    # They are not gone because nothing changed.
    assert star.run().checkpoint.orphans == {"flights -> airlines": 4}
    assert star.wrong() == []
    star.model("airlines", airlines("UA", "AA"))
    assert star.run().orphans == {}
    # Either side may be the one that changes.
    flights_table, airlines_table = star.declaration.tables
    star.declare(tables=(replace(flights_table, policy=Diff(("flight_id",))), airlines_table))
    star.model("airlines", airlines("AA"))
    assert star.run().orphans == {"flights -> airlines": 4}
    star.model("flights", flights(10))
    report = star.run()
    assert report.plan.decision == "update"
    assert report.orphans == {"flights -> airlines": 5}

import pytest

from tableau_pipeline.core.server import Timeouts
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.resources import TableauServerResource, resources_from_env


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    # Prevents: a site whose jobs take longer cannot be refreshed, or a setting has no effect.
    tableau = resources_from_env()["tableau"]
    assert (tableau.timeouts, tableau.takeover) == (Timeouts(), False)
    monkeypatch.setenv("TABLEAU_JOB_TIMEOUT", "60")
    monkeypatch.setenv("TABLEAU_QUEUE_TIMEOUT", "70")
    monkeypatch.setenv("TABLEAU_TAKEOVER", "true")
    tableau = resources_from_env()["tableau"]
    assert (tableau.timeouts.job, tableau.timeouts.queue, tableau.takeover) == (60, 70, True)


def test_empty_settings_are_none(monkeypatch: pytest.MonkeyPatch):
    # Prevents: a line of .env that was left empty stops the location.
    for name in ("TABLEAU_JOB_TIMEOUT", "TABLEAU_QUEUE_TIMEOUT", "TABLEAU_TAKEOVER"):
        monkeypatch.setenv(name, "")
    tableau = resources_from_env()["tableau"]
    assert (tableau.timeouts, tableau.takeover) == (Timeouts(), False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLEAU_JOB_TIMEOUT", "2h"),
        ("TABLEAU_JOB_TIMEOUT", "0"),
        ("TABLEAU_QUEUE_TIMEOUT", "-1"),
        ("TABLEAU_TAKEOVER", "maybe"),
        ("PIPELINE_CACHE_GB", "10 GB"),
        ("PIPELINE_CACHE_GB", "-1"),
    ],
)
def test_bad_values(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    # Prevents: a slip in a setting shows as an error without its name, or passes for the default.
    monkeypatch.setenv(name, value)
    with pytest.raises(RefusedError, match=f"{name} is '{value}'"):
        resources_from_env()


def test_defaults_without_the_environment():
    # Prevents: a project that sets the resource up itself waits otherwise than ours.
    assert TableauServerResource().timeouts == Timeouts()

"""The command `remove`, on the environment of a pull request."""

import re
from io import StringIO

import dagster as dg
import pytest
import tableauserverclient as TSC
from dagster._core.test_utils import create_run_for_test

from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.core.journal import Claim, Owner
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.command_line.conftest import World, documented, masked
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import session

ROOT = "Staging/pr-123"


def published(world: World) -> list[str]:
    with session(world.sandbox) as site:
        return sorted(str(each.name) for each in site.tsc.datasources.all())


def claimed_while_deleting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the jobs whose runs hold the claim on "arrivals", a lock, when `delete` is called."""
    found, delete = list[str](), TableauSite.delete

    def watched(site: TableauSite, luid: str) -> None:
        with dg.DagsterInstance.get() as instance:
            claim = journal_of(instance, "arrivals", root=ROOT).history().claim
            run = instance.get_run_by_id(claim.owner.run_id) if claim else None
            found.extend([run.job_name] if run and not run.is_finished else [])
        delete(site, luid)

    monkeypatch.setattr(TableauSite, "delete", watched)
    return found


def check_records(world: World) -> None:
    """Assert that production is fresh, and that only production's records keep snapshots."""
    assert world.run("status", "arrivals").code == 0
    with dg.DagsterInstance.get() as instance:
        assert journal_of(instance, "arrivals", root=ROOT).history().versions == set()
        assert journal_of(instance, "arrivals").history().versions


@pytest.mark.slow
def test_only_what_the_environment_published_goes(world: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: the cleanup after a pull request deletes production or a user's work."""
    for key in ("arrivals", "gates"):
        world.declare(key)
        world.model(key, flights(8))
    assert world.run("refresh", "arrivals").code == 0
    monkeypatch.setenv("TABLEAU_PROJECT_ROOT", ROOT)
    for key in ("arrivals", "gates"):
        assert world.run("refresh", key).code == 0
    with session(world.sandbox) as site:
        # A user has taken this data source over, and has removed the tag of our deployment.
        (taken,) = site.tsc.datasources.filter(name="Gates")
        site.untag(str(taken.id), [tag for tag in taken.tags if "instance" in tag])
    monkeypatch.delenv("TABLEAU_PROJECT_ROOT")
    assert published(world) == ["Arrivals", "Arrivals", "Gates"]
    # The command deletes nothing until the user says yes.
    monkeypatch.setattr("sys.stdin", StringIO("\n"))
    assert world.run("remove", "--project-root", ROOT).code == 130
    assert published(world) == ["Arrivals", "Arrivals", "Gates"]
    # Nothing is deleted during a refresh, which would publish its data source again.
    with dg.DagsterInstance.get() as instance:
        run = create_run_for_test(instance, status=dg.DagsterRunStatus.STARTED)
        owner = Owner(run_id=run.run_id, step="arrivals", boot="another host")
        journal = journal_of(instance, "arrivals", root=ROOT)
        claim = Claim(refresh=99, owner=owner)
        journal.append(lambda _: claim, after=journal.history())
        result = world.run("remove", "--yes", "--project-root", ROOT)
        assert f"Arrivals: run {run.run_id} is refreshing it" in result.text
        assert published(world) == ["Arrivals", "Arrivals", "Gates"]
        instance.report_run_canceled(run)
    for wrong, code, words in (
        ("", 64, "--project-root is empty"),
        ("Staging", 0, f'nothing below "Staging".* It has published below {ROOT}'),
        ("Staging/pr-13", 1, f'no project "Staging/pr-13" on the site. .*did you mean "{ROOT}"?'),
    ):
        result = world.run("remove", "--yes", "--project-root", wrong)
        assert result.code == code
        assert re.search(words, result.text + result.errors)
    claims = claimed_while_deleting(monkeypatch)
    result = world.run("remove", "--yes", "--project-root", ROOT)
    # The command holds the claim itself, so no refresh publishes during the deletion.
    assert claims == ["tableau_remove"]
    shown = documented(f'tableau-pipeline remove --yes --project-root "{ROOT}"')
    assert (result.code, masked(result.text)) == (0, shown)
    assert published(world) == ["Arrivals", "Gates"]
    check_records(world)
    # The pull request is opened again.
    monkeypatch.setenv("TABLEAU_PROJECT_ROOT", ROOT)
    assert world.run("refresh", "arrivals").code == 0
    assert published(world) == ["Arrivals", "Arrivals", "Gates"]


@pytest.mark.slow
def test_what_people_have_moved_or_tagged(world: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `remove` deletes a data source that a user moved to production or tagged."""
    monkeypatch.setenv("TABLEAU_PROJECT_ROOT", ROOT)
    for key in ("moved", "tagged"):
        world.declare(key)
        world.model(key, flights(8))
        assert world.run("refresh", key).code == 0
    with session(world.sandbox) as site:
        mine = {str(each.name): each for each in site.tsc.datasources.all()}
        default = site.project("Default", create=False)
        site.move(str(mine["Moved"].id), name="Moved", project_id=default)
        # A user's copy takes the name, the project and the tags of "Tagged".
        tags, place = set(mine["Tagged"].tags), mine["Tagged"].project_id
        package = site.download(str(mine["Tagged"].id), world.root)
        site.delete(str(mine["Tagged"].id))
        item = TSC.DatasourceItem(place, name="Tagged")
        copy = site.tsc.datasources.publish(item, package, "CreateNew")
        site.tag(str(copy.id), tags)
    monkeypatch.delenv("TABLEAU_PROJECT_ROOT")
    result = world.run("remove", "--yes", "--project-root", ROOT)
    assert result.code == 1
    assert f'Moved: a user has moved it out of "{ROOT}"' in result.text
    assert "Tagged: it has our tags, but no record of this deployment names it" in result.text
    assert {"Moved", "Tagged"} <= {*published(world)}

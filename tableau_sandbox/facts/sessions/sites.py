"""Two sites: what a session of one sees of the other."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from tableau_sandbox.facts.answer import attribute, expect, expect_that
from tableau_sandbox.facts.fact import reads, writes
from tableau_sandbox.facts.playground import Playground
from tableau_sandbox.facts.scene import Guest, Scene
from tableau_sandbox.facts.sources import MCP, NOBODY, REFERENCE
from tableau_sandbox.facts.vds.asking import call, refused


@contextmanager
def _elsewhere(scene: Scene) -> Generator[Guest]:
    """The same user on another site; the session of the scene may have ended afterwards."""
    elsewhere = replace(scene.credentials, site=scene.others.other_site())
    with scene.sessions_of_its_own(), scene.guest(elsewhere.as_request()) as guest:
        yield guest


@reads("POST auth/switchSite", REFERENCE)
def switch_to_another_site(scene: Scene) -> None:
    """Switching ends the session, and opens one on the other site, with a token of its own."""
    wanted = scene.others.other_site()
    with scene.sessions_of_its_own():
        body = f'<tsRequest><site contentUrl="{wanted}"/></tsRequest>'
        answer = scene.call("POST", "auth/switchSite", body, token=scene.token).succeeds(200)
        site = answer.element("credentials/site")
        expect(wanted, attribute(site, "contentUrl"))
        expect_that(site.get("id") != scene.site, "another site", "the same one")
        token = attribute(answer.element("credentials"), "token")
        path = f"sites/{attribute(site, 'id')}/projects"
        scene.call("GET", path, token=token).succeeds(200)
        scene.call("GET", f"sites/{scene.site}", token=scene.token).is_refused("401002")


@reads("GET sites/{any_site}", NOBODY)
def another_site(scene: Scene) -> None:
    """The record of another site than that of the session is refused with 403004."""
    with _elsewhere(scene) as guest:
        path = f"sites/{scene.site}"
        scene.call("GET", path, token=guest.token).is_refused("403004")


@reads("GET sites/{site}/datasources", NOBODY)
def session_of_another_site(scene: Scene) -> None:
    """A path of another site than that of the session is refused with 403004."""
    with _elsewhere(scene) as guest:
        path = f"sites/{scene.site}/datasources"
        scene.call("GET", path, token=guest.token).is_refused("403004")


@reads("GET sites/{site}/projects", REFERENCE)
def projects_of_each_site(scene: Scene) -> None:
    """Each site has a project "Default" of its own."""
    path = "projects?filter=name:eq:Default,topLevelProject:eq:true"
    here = attribute(scene.ask("GET", path).succeeds(200).element("projects/project"), "id")
    with _elsewhere(scene) as guest:
        there = guest.ask("GET", path).succeeds(200).element("projects/project")
        expect_that(there.get("id") != here, "another project", "the same one")


@writes("GET sites/{site}/datasources/{datasource}", REFERENCE)
def datasource_of_another_site(play: Playground) -> None:
    """A data source of another site is unknown: 404004."""
    path = play.shared.path
    with _elsewhere(play.scene) as guest:
        guest.ask("GET", path).is_refused("404004")


@writes("POST vizql-data-service/read-metadata", MCP)
def service_of_another_site(play: Playground) -> None:
    """VizQL Data Service knows the data sources of the session's site only: 404937."""
    body = {"datasource": {"datasourceLuid": play.shared.luid}}
    with _elsewhere(play.scene) as guest:
        refused(call(play.scene, "read-metadata", body, token=guest.token), "404937")

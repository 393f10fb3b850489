"""Versions of the API: older paths are served, with the methods that they had."""

from uuid import uuid4

from tableau_sandbox.facts.answer import Answer
from tableau_sandbox.facts.fact import reads
from tableau_sandbox.facts.scene import OLDEST_VERSION, Scene
from tableau_sandbox.facts.sources import REFERENCE, TSC

_BATCH = '{"actions":[{"action":"delete","target-table":"t","condition":true}]}'


def _ask(scene: Scene, version: str, method: str, path: str, body: str = "") -> Answer:
    scene.needs_version(version)
    headers = {"Content-Type": "application/json", "RequestID": str(uuid4())} if body else {}
    whole = f"sites/{scene.site}/{path}"
    return scene.call(method, whole, body, token=scene.token, version=version, headers=headers)


@reads("GET sites/{site}/projects", TSC)
def older_versions_are_served(scene: Scene) -> None:
    """A session works on the paths of older versions, too."""
    for version in (OLDEST_VERSION, "3.0"):
        _ask(scene, version, "GET", "projects?pageSize=1").succeeds(200)


@reads("PATCH sites/{site}/datasources/{datasource}/data", REFERENCE)
def update_before_its_version(scene: Scene) -> None:
    """Version 3.12 brought updates of data; on the path of 3.11, they do not exist."""
    path = f"datasources/{uuid4()}/data"
    _ask(scene, "3.11", "PATCH", path, _BATCH).is_refused("404003", "405000")


@reads("GET sites/{site}/jobs", REFERENCE)
def jobs_before_their_version(scene: Scene) -> None:
    """Version 2.6 brought the list of jobs; on the path of 2.5, it does not exist."""
    _ask(scene, "2.5", "GET", "jobs").is_refused("404003", "405000")


@reads("POST auth/switchSite", REFERENCE)
def switch_before_its_version(scene: Scene) -> None:
    """Version 2.6 brought switching sites; on the path of 2.5, it does not exist."""
    body = '<tsRequest><site contentUrl="no-such-site-for-verify"/></tsRequest>'
    answer = scene.call("POST", "auth/switchSite", body, token=scene.token, version="2.5")
    answer.is_refused("404003", "405000")


@reads("GET sites/{site}/flows", REFERENCE)
def flows_before_their_version(scene: Scene) -> None:
    """Version 3.3 brought flows; on the path of 3.2, they do not exist."""
    _ask(scene, "3.2", "GET", "flows").is_refused("404003", "405000")


@reads("PUT sites/{site}/datasources/{datasource}/connections", TSC)
def connections_before_their_version(scene: Scene) -> None:
    """Version 3.26 brought updates of several connections; on the path of 3.25, there are none."""
    body = "<tsRequest><connectionLUIDs/></tsRequest>"
    path = f"datasources/{uuid4()}/connections"
    _ask(scene, "3.25", "PUT", path, body).is_refused("404003", "405000")

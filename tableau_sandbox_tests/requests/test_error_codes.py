"""Error codes that the contract does not show: of what is any site's own, and of faults."""

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import tableauserverclient as tsc

import tableau_sandbox
from tableau_sandbox.faults import Refuse
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.conftest import ALICE, VIEWER
from tableau_sandbox_tests.samples import call, code_of, publish, send_parts, signed_in


@dataclass(frozen=True)
class Site:
    """A site with a data source of the administrator's, and one of Alice's."""

    sandbox: Sandbox
    server: tsc.Server
    alice: tsc.Server
    item: Any
    hers: Any

    def default(self) -> Any:
        return self.server.projects.filter(name="Default")[0]

    def renamed_default(self) -> requests.Response:
        path = f"sites/{{site}}/projects/{self.default().id}"
        body = '<tsRequest><project name="Renamed"/></tsRequest>'
        return call(self.sandbox, "PUT", path, server=self.server, data=body)

    def block(self, content: bytes) -> requests.Response:
        path = f"sites/{{site}}/fileUploads/{self.server.fileuploads.initiate()}"
        file = ("tableau_file", "file", content)
        return send_parts(self.sandbox, self.server, "PUT", path, file)

    def changed(self, item: Any, **attributes: Any) -> object:
        found = self.server.datasources.get_by_id(item.id)
        for name, value in attributes.items():
            setattr(found, name, value)
        return self.alice.datasources.update(found)

    def closed_project(self) -> Any:
        project = self.server.projects.create(tsc.ProjectItem("Closed"))
        self.server.projects.populate_permissions(project)
        for rule in project.permissions:
            self.server.projects.delete_permission(project, rule)
        return project.id

    def refused(self, status: int) -> requests.Response:
        self.sandbox.control.add(Refuse(status=status, path="sites/*/users"))
        return call(self.sandbox, "GET", "sites/{site}/users", server=self.server)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, one_row: Path) -> Generator[Site]:
    folder = tmp_path_factory.mktemp("codes")
    with running_sandbox(folder / "sandbox", users=(ALICE, VIEWER)) as sandbox:
        server = signed_in(sandbox)
        alice = signed_in(sandbox, tsc.TableauAuth(ALICE.name, ALICE.password))
        item, hers = publish(server, one_row), publish(alice, one_row, name="Hers")
        yield Site(sandbox, server, alice, item, hers)


CASES: list[tuple[str, Callable[[Site], object]]] = [
    ("400016", lambda s: s.block(bytes((64 << 20) + 1))),
    ("403003", lambda s: s.server.projects.delete(s.default().id)),
    ("403004", lambda s: s.alice.projects.create(tsc.ProjectItem("On top"))),
    ("403005", lambda s: s.renamed_default()),
    ("403027", lambda s: s.changed(s.hers, owner_id=s.server.user_id)),
    ("403030", lambda s: s.changed(s.hers, project_id=s.closed_project())),
    ("403032", lambda s: s.changed(s.item, description="Mine")),
    ("403032", lambda s: s.changed(s.hers, certified=True)),
    *[(f"{status}000", lambda s, at=status: s.refused(at)) for status in (429, 500, 503, 504)],
]


@pytest.mark.parametrize(
    ("code", "action"),
    [pytest.param(*case, id=f"{case[0]}-{number}") for number, case in enumerate(CASES)],
)
def test_code_is_reached(site: Site, code: str, action: Callable[[Site], object]):
    """Prevents: a client that decides by the code of an error decides wrongly in production."""
    try:
        result = action(site)
    except tsc.ServerResponseError as error:
        given = error.code
    else:
        given = code_of(result) if isinstance(result, requests.Response) else "none"
    assert given == code


def test_every_code_is_met():
    """Prevents: a new refusal that no test has ever met."""
    product, tests = Path(tableau_sandbox.__path__[0]), Path(__file__).parents[1]
    codes = re.compile(r"\b[45]\d{5}\b")

    def found(folder: Path) -> set[str]:
        texts = (file.read_text("utf-8") for file in folder.rglob("*.py"))
        return {code for text in texts for code in codes.findall(text)}

    refused_by_fault = {code for code, _ in CASES}
    assert found(product) - found(tests) - refused_by_fault == set()

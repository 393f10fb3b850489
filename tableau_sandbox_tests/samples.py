"""Files to publish, and functions that read what a server has published."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests
import tableauserverclient as tsc

from tableau_sandbox.options import UserSeed
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.contract.files import hyper_file, packaged_hyper, rows_of
from tableau_sandbox_tests.contract.files import multipart as multipart

TIMEOUT = 30
ADMIN = tsc.TableauAuth(Sandbox.user, Sandbox.password)


def execute(path: Path, *statements: str) -> Path:
    """Write a `.hyper` file with these statements, and return its path."""
    path.write_bytes(hyper_file(*statements))
    return path


def write_hyper(path: Path, query: str) -> Path:
    """Write a `.hyper` file with one table, which has the rows of a query."""
    return execute(path, f'CREATE TABLE "Extract"."Extract" AS ({query})')


def write_package(path: Path, members: Mapping[str, str | Path]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content if isinstance(content, str) else content.read_bytes())
    return path


def wrapped_extract(path: Path, hyper: Path) -> Path:
    """Write a package with the extract of a database, as Tableau Desktop saves it."""
    tds = (
        "<datasource><connection class='postgres'/><extract enabled='true'>"
        "<connection class='hyper' dbname='Data/e.hyper'/></extract></datasource>"
    )
    return write_package(path, {"e.tds": tds, "Data/e.hyper": hyper})


def signed_in(
    sandbox: Sandbox | str, auth: tsc.TableauAuth | tsc.PersonalAccessTokenAuth = ADMIN
) -> tsc.Server:
    """Return Tableau's own client, signed in to a sandbox or at the address of a sandbox."""
    url = sandbox if isinstance(sandbox, str) else sandbox.url
    server = tsc.Server(url, use_server_version=True)
    server.auth.sign_in(auth)
    return server


def user(sandbox: Sandbox, seed: UserSeed) -> tsc.Server:
    """Return Tableau's own client, signed in as another user."""
    return signed_in(sandbox, tsc.TableauAuth(seed.name, seed.password or ""))


def default_project(server: tsc.Server) -> str:
    """Return the LUID of the project "Default"."""
    (project,) = server.projects.filter(name="Default", top_level_project=True)
    assert project.id is not None
    return project.id


def publish(
    server: tsc.Server, file: Path, *, name: str = "Flights", mode: str = "CreateNew"
) -> Any:  # TSC's own type leaves open whether a published data source has an identifier
    item = tsc.DatasourceItem(default_project(server), name=name)
    return server.datasources.publish(item, file, mode)


def rows_on_server(server: tsc.Server, luid: str | None, table: str = "") -> list[list]:
    """Download a data source; return the rows of "Extract"."Extract" or of another table."""
    with TemporaryDirectory() as folder:
        package = server.datasources.download(luid or "", str(Path(folder, "downloaded")))
        _, content = packaged_hyper(Path(package).read_bytes())
    return [[*row] for row in rows_of(content, table)]


def call(
    sandbox: Sandbox, method: str, path: str, *, server: tsc.Server | None = None, **arguments
) -> requests.Response:
    """Send a raw request; `{site}` in the path stands for the site of the session."""
    headers = dict(arguments.pop("headers", {}))
    if server is not None:
        headers["X-Tableau-Auth"] = server.auth_token
        path = path.replace("{site}", server.site_id or "")
    url = f"{sandbox.url}/api/3.27/{path}"
    return requests.request(method, url, headers=headers, timeout=TIMEOUT, **arguments)


def code_of(response: requests.Response) -> str:
    """Return the error code in an answer, after a check that the code fits the status."""
    code = response.text.partition('<error code="')[2][:6]
    assert code[:3] == str(response.status_code), response.text
    return code


def tds_of(server: tsc.Server, luid: str, folder: Path) -> str:
    """Download a data source without its data, and return its `.tds`."""
    path = server.datasources.download(luid, str(folder / "metadata"), include_extract=False)
    with zipfile.ZipFile(path) as package:
        (name,) = package.namelist()
        return package.read(name).decode("utf-8")


def send_parts(
    sandbox: Sandbox, server: tsc.Server, method: str, path: str, *parts: tuple[str, str, Any]
) -> requests.Response:
    """Send a raw request whose body has several parts."""
    body, headers = multipart(*parts)
    return call(sandbox, method, path, server=server, data=body, headers=headers)

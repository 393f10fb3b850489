"""Edits by analysts on the server, and faults of the server, for each night."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import tableauserverclient as TSC

from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.refresh.support.other_users import edits_of
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_pipeline_tests.soak.project import Lake, name_of

_FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "refuse", "status": 503, "retry_after": 1},
    {"kind": "refuse", "status": 429, "retry_after": 1},
    {"kind": "drop", "when": "before"},
    {"kind": "drop", "when": "after"},
    {"kind": "cut", "bytes": 20},
    {"kind": "delay", "seconds": 2},
    {"kind": "expire_sessions", "user": None},
    {"kind": "fail_job", "notes": "Out of memory."},
)
_OWN_ROWS = "SELECT 1::BIGINT AS order_id, 1::BIGINT AS amount, 'Here'::TEXT AS place"
# A refresh sends about 15 calls and starts one job. These smaller numbers let most faults hit.
_CALLS, _JOBS = 12, 0.6


@dataclass(frozen=True)
class Server:
    """A sandbox in another process, with the credentials of its administrator.

    Attributes:
        url: the address of the sandbox, which runs with `--control`.
    """

    url: str
    user: str = "admin"
    password: str = "admin"

    def arm(self, chance: Random, datasources: int) -> None:
        """Arm a fault for every ten data sources, but at least one fault."""
        for fault in chance.choices(_FAULTS, k=max(1, datasources // 10)):
            among = _JOBS if fault["kind"] == "fail_job" else _CALLS
            nth = chance.randint(1, max(1, int(among * datasources)))
            httpx.post(f"{self.url}/control/faults", json={**fault, "nth": nth}).raise_for_status()

    def calm(self) -> int:
        """Clear all faults; return how many have fired."""
        faults = httpx.get(f"{self.url}/control").raise_for_status().json()["faults"]
        httpx.delete(f"{self.url}/control/faults").raise_for_status()
        return sum(bool(each["fired"]) for each in faults)


def edit(server: Server, chance: Random, lake: Lake) -> None:
    """Let analysts make each kind of edit on a different data source."""
    for deed, number in zip(_DEEDS, chance.sample([*lake.rows], len(_DEEDS)), strict=True):
        deed(server, name_of(number))


def _gives_a_caption(server: Server, name: str) -> None:
    edits_of(server, name, lambda tds: tds.replace(b"caption='Amount'", b"caption='Turnover'"))


def _certifies(server: Server, name: str) -> None:
    with session(server) as site:
        (item,) = site.tsc.datasources.filter(name=name)
        item.certified = not item.certified
        item.certification_note = "As of tonight"
        site.tsc.datasources.update(item)


def _overwrites(server: Server, name: str) -> None:
    """Publish fewer rows over a data source."""
    with session(server) as site, TemporaryDirectory() as folder:
        (item,) = site.tsc.datasources.filter(name=name)
        file = Path(folder) / "own.hyper"
        with open_hyper(file, "w", hyper=hyper_process()) as made:
            made.execute('CREATE SCHEMA "Extract"')
            made.execute('CREATE TABLE "Extract"."Extract" AS ' + _OWN_ROWS)
        target = TSC.DatasourceItem(item.project_id, name=name)
        site.tsc.datasources.publish(target, file, "Overwrite")


def _deletes(server: Server, name: str) -> None:
    with session(server) as site:
        (item,) = site.tsc.datasources.filter(name=name)
        site.tsc.datasources.delete(str(item.id))


_DEEDS: tuple[Callable[[Server, str], None], ...] = (
    _gives_a_caption,
    _certifies,
    _overwrites,
    _deletes,
)

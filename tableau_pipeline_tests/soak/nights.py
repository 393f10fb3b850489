"""Nights on a deployment: edits, faults and kills during each night, and its figures."""

import os
import runpy
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import dagster as dg

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import ENDED
from tableau_pipeline_tests.soak.deployment import LOCATION, Deployment
from tableau_pipeline_tests.soak.figures import Night
from tableau_pipeline_tests.soak.judge import differences
from tableau_pipeline_tests.soak.people import edit
from tableau_pipeline_tests.soak.project import (
    Lake,
    assets_of,
    key_of,
    model_of,
    name_of,
)

_EXAMPLE = runpy.run_path(str(ROOT / "examples" / "delete_old_runs.py"))
_UNFINISHED = [status for status in dg.DagsterRunStatus if status.value not in ENDED]
# After this many seconds without a run, do not wait for a trigger any longer, but start a run by
# hand. After a failure, do not wait long, because the sensor retries a refresh only after half an
# hour. Otherwise wait longer, because a busy machine starts runs late.
_IDLE_AFTER_FAILURE, _IDLE = 30, 180
_NIGHT_SECONDS = 1800
# The most starts by hand in one night.
_BY_HAND = 4
# Kill a process between these seconds of a night. The daemon first needs time to notice the night.
_BEFORE_A_KILL = (5.0, 60.0)


class Nights:
    """Lets nights pass on a deployment, and disturbs them."""

    def __init__(
        self, running: Deployment, instance: dg.DagsterInstance, lake: Lake, chance: Random
    ) -> None:
        self._running, self._instance, self._lake, self._chance = running, instance, lake, chance

    def passed(self, number: int) -> Night:
        """Let a night pass, and return its figures.

        Raises:
            AssertionError: if runs do not end, data sources stay out of date, or rows differ.
        """
        began, started = datetime.now(UTC), time.monotonic()
        if number:
            self._lake.change(self._chance, number)
            edit(self._running.server, self._chance, self._lake)
            self._running.server.arm(self._chance, len(self._lake.rows))
        self._lake.begin(number)
        killed = self._kill(number, began) if number else "nothing"
        by_hand = self._settled(began)
        seconds = time.monotonic() - started
        faults = self._running.server.calm()
        wanted = {name_of(table): rows for table, rows in self._lake.rows.items()}
        wrong = differences(self._running.server, wanted)
        assert not wrong, f"After night {number}:\n" + "\n".join(wrong)
        return self._measured(
            number, began=began, seconds=seconds, killed=killed, faults=faults, by_hand=by_hand
        )

    def forget_runs(self, *, before: datetime) -> None:
        """Delete the runs before a time, as `docs/how-to/deployment.md` advises."""
        _EXAMPLE["delete_runs"](self._instance, before=before)

    def _kill(self, number: int, began: datetime) -> str:
        """Kill a process at a random moment of the night, and return its name."""
        name = ("code", "run", "daemon")[number % 3]
        time.sleep(self._chance.uniform(*_BEFORE_A_KILL))
        if name != "run":
            self._running.kill(name)
            return name
        while not self._running.kill("run"):
            if not self._behind(began):
                return "nothing"
            time.sleep(0.3)
        return name

    def _settled(self, began: datetime) -> int:
        """Wait until each data source is newer than its model of this night.

        Returns:
            the number of refreshes that the method has started because no trigger did.
        """
        deadline, by_hand, last_run = time.monotonic() + _NIGHT_SECONDS, 0, time.monotonic()
        while time.monotonic() < deadline:
            if self._instance.get_runs_count(dg.RunsFilter(statuses=_UNFINISHED)):
                last_run = time.monotonic()
            elif not (behind := self._behind(began)):
                return by_hand
            elif time.monotonic() - last_run > (
                _IDLE_AFTER_FAILURE if self._failed(began) else _IDLE
            ):
                assert by_hand < _BY_HAND, f"{behind} stay out of date"
                by_hand += 1
                self._running.web.launched(LOCATION, *behind)
                last_run = time.monotonic()
            time.sleep(1)
        raise AssertionError(f"The night did not end; out of date: {self._behind(began)}")

    def _behind(self, began: datetime) -> list[str]:
        """Return the models without a run this night, and the assets older than their models."""
        found = []
        for table in self._lake.rows:
            model, datasource = self._at(model_of(table)), self._at(key_of(table))
            if model < began.timestamp():
                found.append(model_of(table))
            elif datasource < model:
                found += assets_of(table)
        return found

    def _at(self, key: str) -> float:
        """Return the seconds since 1970 of an asset's last materialization; 0 if it has none."""
        event = self._instance.get_latest_materialization_event(dg.AssetKey(key))
        return event.timestamp if event else 0

    def _measured(self, number: int, *, began: datetime, **more: object) -> Night:
        runs = self._runs(began)
        database = self._running.postgresql.run("SELECT pg_database_size(current_database())")
        return Night(
            number=number,
            began=began,
            runs=len(runs),
            failed=self._failed(began),
            retried=sum("dagster/retry_number" in run.tags for run in runs),
            processes=self._running.count(),
            load=os.getloadavg()[1],
            memory={name: memory for name, (memory, _) in self._running.takes().items()},
            descriptors={name: count for name, (_, count) in self._running.takes().items()},
            disk={
                "database": int(database) / 1e6,
                "object store": _size(self._running.store),
                "DAGSTER_HOME": _size(self._running.home),
            },
            **more,
        )

    def _failed(self, began: datetime) -> int:
        return sum(run.status is dg.DagsterRunStatus.FAILURE for run in self._runs(began))

    def _runs(self, since: datetime) -> Sequence[dg.DagsterRun]:
        found = self._instance.get_run_records(dg.RunsFilter(created_after=since))
        return [record.dagster_run for record in found]


def _size(folder: Path) -> float:
    """Return the MB of the files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6

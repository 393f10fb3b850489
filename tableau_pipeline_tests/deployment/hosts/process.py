"""The process that starts the runs of a host, as a code server does.

It reads orders from stdin, one line of JSON each. An order either starts a run in a new process, or
sends a signal to a run. It reports to stdout when a run stops or ends.
"""

import importlib
import json
import os
import signal
import sys
import traceback
from dataclasses import dataclass, replace
from threading import Thread
from typing import Any

import dagster as dg
import dagster_postgres  # noqa: F401 - imported here once, instead of in each forked run

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.objects import arrow_files
from tableau_pipeline.resources import resources_from_env


def declaration(model: str) -> Declaration:
    """The declaration of a data source with one table, which has the name of the model."""
    attributes = {
        "name": f"Shared {model}",
        "key": f"shared_{model}",
        "project": "Default",
        "tables": {model: {"refresh": {"diff": {"key": ["id"]}}}},
        # The file is so small that any update would exceed the default growth limit.
        "republish": {"growth": 1000},
    }
    return PublishedDatasource.from_attributes_dict(attributes=attributes)


def refresh(model: str, run_id: str) -> bool:
    """Refresh the data source of a model; return whether the run succeeded."""
    assets = [dg.AssetSpec(model), refresh_assets(declaration(model), None)]
    definitions = dg.Definitions(assets, resources=resources_from_env())
    with dg.DagsterInstance.get() as instance:
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=instance, run_id=run_id, raise_on_error=False
        ).success


@dataclass(frozen=True)
class Stop:
    """Where a process stops itself: at the first call of a function, or when the function returns.

    Attributes:
        place: the function, as "module:function".
        after: whether the process stops only when the function returns.
        within: another function, also as "module:function". Calls of `place` before the first call
            of this function do not count.
        gives_up: whether the process soon gives up on an object store that is gone.
    """

    place: str
    after: bool = False
    within: str = ""
    gives_up: bool = False


def stop_at(stop: Stop) -> None:
    """Let this process send itself SIGSTOP at the place that `stop` names."""
    if stop.gives_up:
        arrow_files._RETRY = {"max_retries": 1}
    at = stop.within or stop.place
    module, _, path = at.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)

    def stopping(*args: Any, **kwargs: Any) -> Any:
        setattr(owner, name, original)
        if stop.within:
            stop_at(replace(stop, within=""))
        elif not stop.after:
            os.kill(os.getpid(), signal.SIGSTOP)
        result = original(*args, **kwargs)
        if stop.after and not stop.within:
            os.kill(os.getpid(), signal.SIGSTOP)
        return result

    setattr(owner, name, stopping)


def work(order: dict[str, Any]) -> int:
    """Carry out an order in this process; return the exit code."""
    if stop := order["stop"]:
        stop_at(Stop(**stop))
    try:
        return 0 if refresh(order["model"], order["run"]) else 1
    except Exception:  # noqa: BLE001 - the exit code and the log say it
        traceback.print_exc()
        return 2


def watch(run: str, process: int) -> None:
    """Report each stop of a run, and its end."""
    while True:
        _, status = os.waitpid(process, os.WUNTRACED)
        code = None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        sys.stdout.write(json.dumps({"run": run, "code": code}) + "\n")
        sys.stdout.flush()
        if code is not None:
            return


def main() -> None:
    """Carry out orders until stdin ends."""
    processes: dict[str, int] = {}
    for line in sys.stdin:
        order = json.loads(line)
        if name := order.get("signal"):
            os.kill(processes[order["run"]], signal.Signals[name])
            continue
        process = os.fork()
        if not process:
            sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - the orders are not for this process
            os.dup2(2, 1)
            sys.exit(work(order))
        processes[order["run"]] = process
        Thread(target=watch, args=(order["run"], process), daemon=True).start()


if __name__ == "__main__":
    main()

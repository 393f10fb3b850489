"""The command `doctor`: whether this host can refresh, and what it lacks. No secret is shown."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import click
import dagster as dg
from pyspark.sql import SparkSession
from rich.text import Text
from tableauhyperapi import CreateMode

from tableau_pipeline.command_line import CodeLocation, open_project, prepare
from tableau_pipeline.command_line.output import Output, columns, reports
from tableau_pipeline.command_line.trial import tried_out
from tableau_pipeline.components.journal import newest_records
from tableau_pipeline.components.status import statuses
from tableau_pipeline.core.declaration import below
from tableau_pipeline.core.site_record import SiteFacts
from tableau_pipeline.objects.local_files import temporary_folder
from tableau_pipeline.publishing import access_checks
from tableau_pipeline.publishing.access_checks import AccessCheck, judged, look, looking
from tableau_pipeline.refresh.setup import sites_folder
from tableau_pipeline.refresh.updates import record_of
from tableau_pipeline.rendering import megabytes
from tableau_pipeline.resources import (
    data_dir,
    in_object_store,
    resources_from_env,
    shared_place,
    tableau_project_root,
)

_VARIABLES = re.compile(r"(TABLEAU|PIPELINE|SPARK|HYPER|DAGSTER|TSC|JAVA)_[A-Z_]+|TMPDIR")
_SECRETS = re.compile(r"(?!TABLEAU_TOKEN_NAME$).*(VALUE|SECRET|PASSWORD|TOKEN|KEY)")
_JAVA, _LEAST_FREE = 17, 5e9


@click.command()
@click.option("--no-spark", is_flag=True, help="Do not start Spark, which takes some seconds.")
@click.option("--upload", is_flag=True, help="Upload a file as large as the largest update.")
@click.option("--trial", metavar="PROJECT", help="Try out the site instead; see below.")
@click.option("--resume", is_flag=True, help="Go on with a trial that did not wait any longer.")
@click.option(
    "--wait", default=600, show_default=True, help="Seconds that a trial waits for a job."
)
@reports
def doctor(
    module: str | None,
    *,
    no_spark: bool,
    upload: bool,
    trial: str | None,
    resume: bool,
    wait: int,
    output: Output,
) -> int:
    """Look at all that a refresh needs: this host, the server, the rights on each project.

    With --trial, it publishes, updates and deletes a few throwaway data sources in a project of
    yours, some kilobytes, and tells what the site does where Tableau's documents are silent. What
    it finds out, later refreshes know. It needs the TABLEAU_* variables and no Dagster project.
    Nothing is left behind; after a kill, the next trial removes what is. Try out one at a time.

    Exit code: 0 nothing is wrong, 1 something is; of a trial: 0 it is finished, 1 it is not.
    """
    if trial is not None:
        return tried_out(trial, wait=wait, resume=resume, output=output)
    if resume:
        raise click.UsageError("--resume goes with --trial PROJECT")
    found = list[AccessCheck]()
    before, project, resources = dict(os.environ), None, None
    root = prepare().root_path
    found.extend([*_host(), *_variables(root, before)])
    with ExitStack() as stack:
        with looking(found, "project"):
            project = stack.enter_context(open_project(module))
            found.extend(_instance(project))
        look(found, "disk", _disk())
        with looking(found, "resources", remedy="correct the variables"):
            own = project.definitions.resources if project else None
            given = resources_from_env() | dict(own or {})
            wanted = {name: given[name] for name in ("spark", "hyper", "tableau")}
            resources = stack.enter_context(dg.build_resources(wanted))
        if resources:
            output.progress("Starting hyperd" + ("" if no_spark else " and Spark"))
            look(found, "hyperd", _hyperd(resources.hyper))
            look(found, "spark", () if no_spark else _spark(resources.spark))
            output.progress("Asking the server")
            with looking(found, "server"):
                _server(found, resources.tableau, project, output, upload=upload)
    signs = [each.sign for each in found]
    rows = [(e.sign, e.topic, e.text + f"\n-> {e.remedy}" * bool(e.remedy)) for e in found]
    table = columns(("", "WHAT", "FOUND"), rows)
    closing = f"{signs.count('x')} wrong, {signs.count('!')} to know, {signs.count('ok')} ok."
    output.result({"findings": [asdict(each) for each in found]}, table, Text(closing))
    return int("x" in signs)


def _host() -> Iterator[AccessCheck]:
    found = f"{platform.python_version()}, {sys.executable}"
    yield judged("python", found, is_fine=sys.version_info >= (3, 11))
    if os.environ.get("SPARK_REMOTE"):
        return
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    command = [java or "", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=False) if java else None
    version = re.search(r'"((\d+)[^"]*)"', told.stderr if told else "")
    found = f"{version[1]}, {java}" if version else "there is none"
    do = f"install Java {_JAVA} or newer, or let JAVA_HOME name one"
    yield judged("java", found, is_fine=version and int(version[2]) >= _JAVA, remedy=do)


def _variables(root: Path, before: Mapping[str, str]) -> Iterator[AccessCheck]:
    """Where each variable comes from; Dagster lets the file win."""
    file = root / ".env"
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    places = {line.partition("=")[0].strip(): number for number, line in enumerate(lines, 1)}
    for name, value in sorted(os.environ.items()):
        if _VARIABLES.fullmatch(name) and value:
            # A line such as X=${X:-value} leaves what the environment says.
            is_filed = name in places and value != before.get(name)
            where = f"{file.name}:{places[name]}" if is_filed else "the environment"
            shown = "(set)" if _SECRETS.match(name) else value
            yield AccessCheck("ok", name, f"{shown}, from {where}")


def _instance(project: CodeLocation) -> Iterator[AccessCheck]:
    storage = type(project.instance.event_log_storage).__name__
    text = f"{os.environ['DAGSTER_HOME']} ({storage}), records of"
    yield AccessCheck(
        "ok", "instance", f"{text} {len(newest_records(project.instance))} data sources"
    )
    yield AccessCheck("ok", "project", f"{len(project.datasources)} data sources are declared")


def _disk() -> Iterator[AccessCheck]:
    for about, folder in (("temporary folder", temporary_folder()), ("data folder", data_dir())):
        if about == "data folder" and in_object_store():
            yield AccessCheck("ok", about, f"{shared_place('snapshots')} (not tried)")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix="doctor "):
            free = shutil.disk_usage(folder).free
        text, do = f"{folder} can be written, {megabytes(free)} free", "make room for an extract"
        yield judged(about, text, is_fine=free >= _LEAST_FREE, sign="!", remedy=do)


def _hyperd(hyper: Any) -> Iterator[AccessCheck]:
    with TemporaryDirectory() as folder:
        file = hyper.connect(Path(folder) / "doctor.hyper", CreateMode.CREATE)
        with file as connection:
            found = connection.execute_scalar_query("SELECT version()")
    yield AccessCheck("ok", "hyperd", f"{found}, may take {hyper.memory_limit} of the memory")


def _spark(spark: Any) -> Iterator[AccessCheck]:
    session = spark.spark_session
    local = isinstance(session, SparkSession)
    master = session.sparkContext.master if local else os.environ.get("SPARK_REMOTE", "remote")
    yield AccessCheck("ok", "spark", f"Spark {session.version}, {master}")
    if in_object_store():
        return
    # As a model writes: each of its executors into the data folder.
    with TemporaryDirectory(dir=data_dir(), prefix="doctor ") as folder:
        session.range(0, 64, 1, 8).write.parquet(f"{folder}/rows")
        arrived = [*Path(folder, "rows").glob("part-*.parquet")]
    text = f"{'write to' if arrived else 'do not write where this host reads:'} {data_dir()}"
    do = "let PIPELINE_DATA_DIR name a folder that all of them share, or an object store"
    yield judged("executors", text, is_fine=arrived, remedy=do)


def _record(facts: SiteFacts) -> Iterator[AccessCheck]:
    """What the site was seen to do."""
    if facts.learnt_at is None:
        text = "nothing is known of what this release does where Tableau's documents are silent"
        yield AccessCheck(
            "!", "site", text, "run doctor --trial PROJECT, or let refreshes find out"
        )
        return
    found = "; ".join(facts.peculiarities) or "as assumed"
    yield AccessCheck("ok", "site", f"{found}; seen until {facts.learnt_at:%Y-%m-%d}")


def _server(
    found: list[AccessCheck],
    tableau: Any,
    project: CodeLocation | None,
    output: Output,
    *,
    upload: bool,
) -> None:
    declared = project.datasources if project else {}
    records = statuses(project.instance, declared.values()) if project else {}
    root, counts = tableau_project_root(), any(each.needs_counts for each in declared.values())
    places = [below(each, root) for each in declared.values()]
    with tableau.session(output.waits(), counts=counts) as site:
        found.extend(access_checks.on_site(site))
        look(found, "site", _record(record_of(site, sites_folder(shared_place("kept"))).facts), "!")
        look(found, "token", access_checks.on_token(site, tableau.token_name or ""), "!")
        look(
            found, "upload", access_checks.on_upload(site) if upload and site.payload_limit else ()
        )
        look(found, "projects", access_checks.on_projects(site, places))
        # The first one of each project that is published.
        recorded = [(e.project_path, records[k].checkpoint) for k, e in [*declared.items()][::-1]]
        for checkpoint in {path: each for path, each in recorded if each and each.luid}.values():
            access_checks.on_published(found, site, checkpoint)

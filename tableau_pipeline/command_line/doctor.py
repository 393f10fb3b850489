"""The command `doctor`: check whether this host can refresh data sources; show no secrets."""

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

from tableau_pipeline.command_line.output import Output, columns, reports
from tableau_pipeline.command_line.project import CodeLocation, open_project, prepare
from tableau_pipeline.command_line.trial import run_trial
from tableau_pipeline.components.journal import (
    FORMER_RECORDS,
    has_former_records,
    journal_place,
    newest_records,
)
from tableau_pipeline.components.status import statuses
from tableau_pipeline.core.declaration import in_environment
from tableau_pipeline.core.site_record import SiteFacts
from tableau_pipeline.dagster_internals import name_of_storage
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects.local_files import temporary_folder
from tableau_pipeline.publishing import access_checks
from tableau_pipeline.publishing.access_checks import (
    AccessCheck,
    add_checks,
    check_result,
    collecting_errors,
)
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
_OLDEST_JAVA, _LEAST_FREE = 17, 5e9


@click.command()
@click.option("--no-spark", is_flag=True, help="Do not start Spark, which takes some seconds.")
@click.option("--upload", is_flag=True, help="Upload a file as large as the largest update.")
@click.option("--trial", metavar="PROJECT", help="Only try out the site in PROJECT; see below.")
@click.option("--resume", is_flag=True, help="Continue a trial that stopped waiting for a job.")
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
    """Check everything that a refresh needs: this host, the server, and the rights on each project.

    With --trial, the command publishes and updates a few small data sources of its own in PROJECT,
    and deletes them. It shows how the site behaves where Tableau's documents say nothing. Later
    refreshes use these findings. A trial needs the TABLEAU_* variables, but no Dagster project. Run
    only one trial at a time. A trial also deletes what an earlier, killed trial has left.

    Exit code: 0 no check failed, or the trial is finished; 1 otherwise.
    """
    if trial is not None:
        return run_trial(trial, wait=wait, resume=resume, output=output)
    if resume:
        raise click.UsageError("--resume goes with --trial PROJECT")
    checks = list[AccessCheck]()
    environment, project, resources = dict(os.environ), None, None
    root = prepare().root
    checks.extend([*_host(), *_variables(root, environment)])
    with ExitStack() as stack:
        with collecting_errors(checks, "project"):
            project = stack.enter_context(open_project(module))
            _check_project(checks, project)
        add_checks(checks, "disk", _disk())
        with collecting_errors(checks, "resources", remedy="correct the variables"):
            overrides = project.definitions.resources if project else None
            available = resources_from_env() | dict(overrides or {})
            needed = {name: available[name] for name in ("spark", "hyper", "tableau")}
            resources = stack.enter_context(dg.build_resources(needed))
        if resources:
            output.progress("Starting hyperd" + ("" if no_spark else " and Spark"))
            add_checks(checks, "hyperd", _hyperd(resources.hyper))
            add_checks(checks, "spark", () if no_spark else _spark(resources.spark))
            output.progress("Asking the server")
            with collecting_errors(checks, "server"):
                _check_server(checks, resources.tableau, project, output, upload=upload)
    signs = [check.sign for check in checks]
    rows = [(e.sign, e.topic, e.text + f"\n-> {e.remedy}" * bool(e.remedy)) for e in checks]
    table = columns(("", "WHAT", "FOUND"), rows)
    closing = f"{signs.count('x')} wrong, {signs.count('!')} to know, {signs.count('ok')} ok."
    output.result({"findings": [asdict(check) for check in checks]}, table, Text(closing))
    return int("x" in signs)


def _host() -> Iterator[AccessCheck]:
    text = f"{platform.python_version()}, {sys.executable}"
    yield check_result("python", text, is_fine=sys.version_info >= (3, 11))
    if os.environ.get("SPARK_REMOTE"):
        return
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    command = [java or "", "-version"]
    result = subprocess.run(command, capture_output=True, text=True, check=False) if java else None
    version = re.search(r'"((\d+)[^"]*)"', result.stderr if result else "")
    text = f"{version[1]}, {java}" if version else "there is none"
    remedy = f"install Java {_OLDEST_JAVA} or newer, or set JAVA_HOME to its folder"
    yield check_result(
        "java", text, is_fine=version and int(version[2]) >= _OLDEST_JAVA, remedy=remedy
    )


def _variables(root: Path, before: Mapping[str, str]) -> Iterator[AccessCheck]:
    """Show where each variable comes from. In Dagster, `.env` overrides the environment."""
    file = root / ".env"
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    numbers = {line.partition("=")[0].strip(): number for number, line in enumerate(lines, 1)}
    for name, value in sorted(os.environ.items()):
        if _VARIABLES.fullmatch(name) and value:
            # A line such as X=${X:-value} in `.env` keeps the environment's value: compare values.
            is_from_file = name in numbers and value != before.get(name)
            where = f"{file.name}:{numbers[name]}" if is_from_file else "the environment"
            shown = "(set)" if _SECRETS.match(name) else value
            yield AccessCheck("ok", name, f"{shown}, from {where}")


def _check_project(checks: list[AccessCheck], project: CodeLocation) -> None:
    storage = name_of_storage(project.instance)
    checks += [
        AccessCheck("ok", "instance", f"{os.environ['DAGSTER_HOME']} ({storage})"),
        AccessCheck("ok", "project", f"{len(project.datasources)} data sources are declared"),
    ]
    add_checks(checks, "journal", _journal(project))


def _journal(project: CodeLocation) -> Iterator[AccessCheck]:
    """Show the place of the journal, which records refreshes.

    Report unreadable records, and records that an earlier release wrote.
    """
    place = journal_place()
    count = len(place.recorded_keys())
    text = f'{place.where}, deployment "{place.name}", records of {count} data sources'
    if has_former_records(project.instance):
        yield AccessCheck("!", "journal", f"{text}. {FORMER_RECORDS}")
    else:
        yield AccessCheck("ok", "journal", text)
    for error in newest_records(project.instance, project.datasources).values():
        if isinstance(error, RefusedError):
            yield AccessCheck("x", "journal", str(error))


def _disk() -> Iterator[AccessCheck]:
    for topic, folder in (("temporary folder", temporary_folder()), ("data folder", data_dir())):
        if topic == "data folder" and in_object_store():
            yield AccessCheck("ok", topic, f"{shared_place('snapshots')} (not tried)")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix="doctor "):
            free = shutil.disk_usage(folder).free
        text, remedy = (
            f"{folder} can be written, {megabytes(free)} free",
            "make room for an extract",
        )
        yield check_result(topic, text, is_fine=free >= _LEAST_FREE, sign="!", remedy=remedy)


def _hyperd(hyper: Any) -> Iterator[AccessCheck]:
    with TemporaryDirectory() as folder:
        file = hyper.connect(Path(folder) / "doctor.hyper", CreateMode.CREATE)
        with file as connection:
            version = connection.execute_scalar_query("SELECT version()")
    yield AccessCheck("ok", "hyperd", f"{version}, may take {hyper.memory_limit} of the memory")


def _spark(spark: Any) -> Iterator[AccessCheck]:
    session = spark.spark_session
    is_local = isinstance(session, SparkSession)
    master = session.sparkContext.master if is_local else os.environ.get("SPARK_REMOTE", "remote")
    yield AccessCheck("ok", "spark", f"Spark {session.version}, {master}")
    if in_object_store():
        return
    # Let executors write into the data folder, as executors do when Spark writes a model.
    with TemporaryDirectory(dir=data_dir(), prefix="doctor ") as folder:
        session.range(0, 64, 1, 8).write.parquet(f"{folder}/rows")
        arrived = [*Path(folder, "rows").glob("part-*.parquet")]
    text = f"{'write to' if arrived else 'do not write where this host reads:'} {data_dir()}"
    remedy = "set PIPELINE_DATA_DIR to a folder that all executors share, or to an object store"
    yield check_result("executors", text, is_fine=arrived, remedy=remedy)


def _site_facts(facts: SiteFacts) -> Iterator[AccessCheck]:
    """Show which facts refreshes and trials have found out about the site."""
    if facts.learnt_at is None:
        text = "it is not known yet what this release does where Tableau's documents are silent"
        yield AccessCheck(
            "!", "site", text, "run doctor --trial PROJECT, or let refreshes find out"
        )
        return
    peculiarities = "; ".join(facts.peculiarities) or "as assumed"
    yield AccessCheck("ok", "site", f"{peculiarities}; last seen on {facts.learnt_at:%Y-%m-%d}")


def _check_server(
    found: list[AccessCheck],
    tableau: Any,
    project: CodeLocation | None,
    output: Output,
    *,
    upload: bool,
) -> None:
    declared = project.datasources if project else {}
    records = statuses(project.instance, declared.values()) if project else {}
    root, counts = (
        tableau_project_root(),
        any(datasource.needs_counts for datasource in declared.values()),
    )
    places = [in_environment(datasource, root) for datasource in declared.values()]
    with tableau.session(output.waits(), counts=counts) as site:
        found.extend(access_checks.on_site(site))
        add_checks(
            found,
            "site",
            _site_facts(record_of(site, sites_folder(shared_place("kept"))).facts),
            "!",
        )
        add_checks(found, "token", access_checks.on_token(site, tableau.token_name or ""), "!")
        add_checks(
            found, "upload", access_checks.on_upload(site) if upload and site.payload_limit else ()
        )
        add_checks(found, "projects", access_checks.on_projects(site, places))
        # In each project, check the first declared data source that is published.
        recorded = [
            (datasource.project_path, records[key].checkpoint)
            for key, datasource in [*declared.items()][::-1]
        ]
        for checkpoint in {
            path: published for path, published in recorded if published and published.luid
        }.values():
            access_checks.on_published(found, site, checkpoint)

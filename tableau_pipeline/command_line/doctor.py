"""The command `doctor`: whether this host can refresh, and what it lacks. No secret is shown."""

import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import click
import dagster as dg
from pyspark.sql import SparkSession
from rich.text import Text
from tableauhyperapi import CreateMode
from tableauserverclient import Pager, ServerResponseError

from tableau_pipeline.command_line.output import Output, columns
from tableau_pipeline.command_line.project import Project, opened, prepare, project_root
from tableau_pipeline.components.journal import newest_records
from tableau_pipeline.core.declaration import megabytes, project_path
from tableau_pipeline.core.journal import ClaimRelease
from tableau_pipeline.core.project_root import below, key_below
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.objects.local import temporary_folder
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.resources import (
    data_dir,
    resources_from_env,
    shared_place,
    tableau_project_root,
)
from tableau_pipeline.resources.data_folder import in_object_store

_VARIABLES = re.compile(r"(TABLEAU|PIPELINE|SPARK|HYPER|DAGSTER|TSC|JAVA)_[A-Z_]+|TMPDIR")
_PUBLISHERS = re.compile("Creator|ExplorerCanPublish|.*Administrator.*|Publisher")
_SKEW_SECONDS, _LEAST_FREE = 60, 5e9


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look has found: `sign` is "ok", "!" or "x"; `remedy` is what to do about it."""

    sign: str
    about: str
    text: str
    remedy: str = ""


# A look yields what it finds; an error that it raises is a finding, too.
Look = Callable[[], Iterator[Finding]]


@click.command()
@click.option("--no-spark", is_flag=True, help="Do not start Spark, which takes some seconds.")
@click.option("--upload", is_flag=True, help="Upload a file as large as the largest update.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.pass_obj
def doctor(module: str | None, *, no_spark: bool, upload: bool, as_json: bool) -> int:
    """Look at all that a refresh needs: this host, the server, the rights on each project.

    Exit code: 0 nothing is wrong, 1 something is.
    """
    output = Output(as_json=as_json)
    before, root = dict(os.environ), project_root()
    prepare(root)
    found = [*_run("python", _python), *_run("variables", partial(_variables, root, before))]
    with ExitStack() as stack:
        project: Project | None = None
        try:
            project = stack.enter_context(opened(module))
        except Exception as error:  # noqa: BLE001 - what else is wrong is of interest all the same
            found.append(Finding("x", "project", str(error), "see the message"))
        given = dict(project.definitions.resources or {}) if project else {}
        found += _run("instance", partial(_instance, project)) if project else []
        found += _run("disk", _disk)
        resources = _run_resources(stack, found, {**resources_from_env(), **given})
        if resources:
            output.progress("Starting hyperd" + ("" if no_spark else " and Spark"))
            found += _run("hyperd", partial(_hyperd, resources.hyper))
            found += [] if no_spark else _run("spark", partial(_spark, resources.spark))
            output.progress("Asking the server")
            look = partial(_server, resources.tableau, project, upload=upload)
            found += _run("server", look)
    signs = [each.sign for each in found]
    table = columns(("", "WHAT", "FOUND"), [(e.sign, e.about, _told(e)) for e in found])
    closing = f"{signs.count('x')} wrong, {signs.count('!')} to know, {signs.count('ok')} ok."
    output.result({"findings": [asdict(each) for each in found]}, table, Text(closing))
    return int("x" in signs)


def _told(finding: Finding) -> str:
    return finding.text + (f"\n-> {finding.remedy}" if finding.remedy else "")


def _run(about: str, look: Look) -> list[Finding]:
    found: list[Finding] = []
    try:
        found.extend(look())
    except Exception as error:  # noqa: BLE001 - a doctor looks at the rest all the same
        found.append(Finding("x", about, str(error) or repr(error)))
    return found


def _run_resources(stack: ExitStack, found: list[Finding], given: Mapping[str, Any]) -> Any:
    names = ("spark", "hyper", "tableau")
    try:
        return stack.enter_context(dg.build_resources({name: given[name] for name in names}))
    except Exception as error:  # noqa: BLE001 - as above
        found.append(Finding("x", "resources", str(error), "correct the variables"))
        return None


def _python() -> Iterator[Finding]:
    version, known = platform.python_version(), sys.version_info >= (3, 11)
    yield Finding("ok" if known else "x", "python", f"{version}, {sys.executable}")


def _variables(root: Path | None, before: Mapping[str, str]) -> Iterator[Finding]:
    """Where each variable comes from; Dagster lets the file win."""
    file = (root or Path.cwd()) / ".env"
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    places = {line.partition("=")[0].strip(): number for number, line in enumerate(lines, 1)}
    for name, value in sorted(os.environ.items()):
        if not _VARIABLES.fullmatch(name) or not value:
            continue
        is_hidden = re.search("VALUE|SECRET|PASSWORD|TOKEN|KEY", name) and name != (
            "TABLEAU_TOKEN_NAME"
        )
        # A line such as X=${X:-value} leaves what the environment says.
        is_filed = name in places and value != before.get(name)
        where = f"{file.name}:{places[name]}" if is_filed else "the environment"
        yield Finding("ok", name, f"{'(set)' if is_hidden else value}, from {where}")


def _instance(project: Project) -> Iterator[Finding]:
    instance = project.instance
    storage = type(instance.event_log_storage).__name__
    refreshed = newest_records(instance)
    text = f"{os.environ['DAGSTER_HOME']} ({storage}), records of {len(refreshed)} data sources"
    yield Finding("ok", "instance", text)
    yield Finding("ok", "project", f"{len(project.datasources)} data sources are declared")


def _disk() -> Iterator[Finding]:
    for about, folder in (("temporary folder", temporary_folder()), ("data folder", data_dir())):
        if about == "data folder" and in_object_store():
            yield Finding("ok", about, f"{shared_place('snapshots')} (not tried)")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix="doctor "):
            free = shutil.disk_usage(folder).free
        little = free < _LEAST_FREE
        remedy = "make room: an extract has to fit" if little else ""
        text = f"{folder} can be written, {megabytes(free)} free"
        yield Finding("!" if little else "ok", about, text, remedy)


def _hyperd(hyper: Any) -> Iterator[Finding]:
    with TemporaryDirectory() as folder:
        opened_file = hyper.connect(Path(folder) / "doctor.hyper", CreateMode.CREATE)
        with opened_file as connection:
            found = connection.execute_scalar_query("SELECT version()")
    yield Finding("ok", "hyperd", f"{found}, may take {hyper.memory_limit} of the memory")


def _spark(spark: Any) -> Iterator[Finding]:
    session = spark.spark_session
    local = isinstance(session, SparkSession)
    master = session.sparkContext.master if local else os.environ.get("SPARK_REMOTE", "remote")
    yield Finding("ok", "spark", f"Spark {session.version}, {master}")
    if in_object_store():
        return
    # As a model writes: each of its executors into the data folder.
    with TemporaryDirectory(dir=data_dir(), prefix="doctor ") as folder:
        session.range(0, 64, 1, 8).write.parquet(f"{folder}/rows")
        found = len([*Path(folder, "rows").glob("part-*.parquet")])
    if found:
        yield Finding("ok", "executors", f"write to {data_dir()}")
    else:
        remedy = "let PIPELINE_DATA_DIR name a folder that all of them share, or an object store"
        yield Finding("x", "executors", f"what they write to {data_dir()} is not here", remedy)


def _server(tableau: Any, project: Project | None, *, upload: bool) -> Iterator[Finding]:
    counts = any(each.needs_counts for each in project.datasources.values()) if project else False
    with tableau.session(counts=counts) as site:
        info = site.tsc.server_info.get()
        product = getattr(info, "product_version", "?")
        yield Finding("ok", "server", f"{site.url}: Tableau {product}, REST {site.tsc.version}")
        is_here = re.match(r"https?://(127\.|localhost|\[::1\])", site.url)
        if site.url.startswith("https"):
            yield Finding("ok", "TLS", "its certificate is valid")
        elif not is_here:
            yield Finding("!", "TLS", "the connection is not encrypted", "use https://")
        skew = (datetime.now(UTC) - site.now()).total_seconds()
        sign = "!" if abs(skew) > _SKEW_SECONDS else "ok"
        remedy = "set the clock: connected apps need it" if sign == "!" else ""
        yield Finding(sign, "clock", f"{abs(skew):.0f} s from that of the server", remedy)
        yield _role(site)
        if limit := site.payload_limit:
            yield Finding("ok", "updates", f"up to {megabytes(limit)}")
        else:
            yield Finding("!", "updates", "the server has none: every refresh sends whole files")
        if upload and limit:
            yield _upload(site, limit)
        if project:
            yield from _projects(site, project)
            yield from _published(site, project)


def _role(site: TableauSite) -> Finding:
    try:
        user = site.tsc.users.get_by_id(site.user_id)
    except ServerResponseError:
        return Finding("ok", "user", f"{site.user_id}; the server does not tell its site role")
    may = _PUBLISHERS.fullmatch(user.site_role or "")
    remedy = "" if may else "give it the site role Creator or Explorer (can publish)"
    return Finding("ok" if may else "x", "user", f"{user.name}, {user.site_role}", remedy)


def _upload(site: TableauSite, size: int) -> Finding:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "doctor.hyper"
        with file.open("wb") as opened_file:
            opened_file.truncate(size)
        site.upload(file)
    return Finding("ok", "upload", f"{megabytes(size)} arrive; the server drops them again")


def _projects(site: TableauSite, project: Project) -> Iterator[Finding]:
    root = tableau_project_root()
    placed = [below(each, root) for each in project.datasources.values()]
    declared = {each.project_path: each for each in placed}
    items = {str(item.id): item for item in Pager(site.tsc.projects)}
    for path, each in sorted(declared.items()):
        about, luid = f"project {path}", site.find_project(each.project)
        if luid is None:
            sign, text = ("ok", "to be created") if each.create_project else ("x", "is not there")
            remedy = "" if each.create_project else "create it, or set create_project: true"
            yield Finding(sign, about, text, remedy)
            continue
        writeable = getattr(items.get(luid), "writeable", None)
        if writeable is False:
            yield Finding("x", about, "this user may not publish to it", "give it Publish there")
        else:
            told = "may publish" if writeable else "the server does not tell who may publish"
            yield Finding("ok", about, told)


def _published(site: TableauSite, project: Project) -> Iterator[Finding]:
    """What this user may do with what is published already: one data source of each project."""
    newest, root = newest_records(project.instance), tableau_project_root()
    tried = set()
    for key, each in project.datasources.items():
        _, request = newest.get(key_below(key, root), (None, None))
        checkpoint = request.checkpoint if isinstance(request, ClaimRelease) else None
        path = project_path(each.project)
        if checkpoint is None or checkpoint.luid is None or path in tried:
            continue
        tried.add(path)
        yield from _run(f"read {each.name}", partial(_read, site, each.name, checkpoint.luid))
        names = {str(checkpoint.target(table).name.unescaped): None for table in checkpoint.tables}
        yield from _run(
            f"count {each.name}", partial(_count, site, each.name, checkpoint.luid, names)
        )


def _read(site: TableauSite, name: str, luid: str) -> Iterator[Finding]:
    remote = site.find_by_luid(luid)
    if remote is None:
        yield Finding("!", f"read {name}", "it is no longer on the server", "refresh it")
        return
    site.metadata(luid)
    owner = "it is its owner, who may overwrite, update and tag it"
    other = "another user owns it: overwriting needs Overwrite, which only a refresh tries"
    is_owner = remote.owner_id == site.user_id
    yield Finding("ok" if is_owner else "!", f"read {name}", owner if is_owner else other)


def _count(
    site: TableauSite, name: str, luid: str, names: Mapping[str, str | None]
) -> Iterator[Finding]:
    try:
        rows = sum(site.count(luid, names).values())
    except RefreshError as error:
        remedy = "give it API Access; until then a refresh reads back what is small enough"
        yield Finding("!", f"count {name}", str(error), remedy)
    else:
        yield Finding("ok", f"count {name}", f"the server counts {rows:,} rows")

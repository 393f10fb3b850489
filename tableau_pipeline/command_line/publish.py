"""The command `publish`: make a published data source equal to files."""

import os
import tomllib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click
from rich.text import Text

from tableau_pipeline.command_line.output import LogLines, Output, accept_option, reports, signed
from tableau_pipeline.errors import RefreshError, RefusedError, SettingError
from tableau_pipeline.hyper.types import Nested
from tableau_pipeline.ingest.errors import BadRows
from tableau_pipeline.ingest.options import Format
from tableau_pipeline.ingest.publication import BadRowsPolicy, FilePublication, Mode
from tableau_pipeline.outcome import Accept, accepts_of
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.scripting.environment import (
    current_user,
    in_checkout,
    shared_place,
    user_data_dir,
)
from tableau_pipeline.scripting.files import publish_files


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--name", required=True, help="Name of the data source on the Tableau site.")
@click.option("--project", default="Default", show_default=True, help="Path of the project, A/B.")
@click.option("--key", multiple=True, help="Column that identifies a row: only changes are sent.")
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default="replace",
    show_default=True,
    help="Replace all rows, or append the rows of these files.",
)
@click.option("--file-column", help="With append: name of a new column with each row's file.")
@click.option("--columns", help='Types as a Spark schema, "id bigint, day date".')
@click.option("--format", type=click.Choice(get_args(Format)), help="Default: by the file suffix.")
@click.option("--reader", multiple=True, metavar="OPTION=VALUE", help="How to read: sep=;")
@click.option("--bad-rows", type=click.Choice(get_args(BadRowsPolicy)), default="refuse")
@click.option("--nested", type=click.Choice(get_args(Nested)), default="refuse")
@click.option("--create-project", is_flag=True, help="Create the project if it is absent.")
@click.option("--adopt", is_flag=True, help="Take over a data source that others have published.")
@click.option("--full", is_flag=True, help="Send everything, even if nothing changed.")
@accept_option("Accept this once instead of refusing it.")
@click.option("--samples", is_flag=True, help="Show some values of rows in refusals.")
@click.option("--dry-run", is_flag=True, help="Plan and report, but change nothing.")
@click.option("--build-only", is_flag=True, help="Build the full .hyper file, and stop.")
@reports
def publish(
    module: str | None,
    paths: Sequence[str],
    *,
    reader: Sequence[str],
    key: Sequence[str],
    full: bool,
    accept: Sequence[str],
    samples: bool,
    dry_run: bool,
    build_only: bool,
    output: Output,
    **given: Any,
) -> int:
    """Publish CSV, JSON or Parquet files: a PATH is a file, a folder, or a pattern in quotes.

    The command runs in any folder, without Spark and Dagster. It needs TABLEAU_SERVER_URL,
    TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE.

    Exit code: 0 the rows are published, or had not changed; 1 the publish was refused or failed.
    """
    note = _use_data_folder()
    if note:
        output.progress(note)
    data: dict[str, Any] = {"data_folder": str(shared_place("")), "note": note}
    options = Options(full=full, accept=frozenset(map(Accept, accept)), by=current_user())
    try:
        publication = FilePublication(
            paths=tuple(paths), key=tuple(key), reader=_reader(reader), **given
        )
        data["key"] = publication.declaration().key
        with _in_data_folder(), output.bar() as tell:
            log = LogLines(output, lambda record: not hasattr(record, "closes"), tell)
            published = publish_files(
                publication,
                options=options,
                samples=samples,
                dry_run=dry_run,
                build_only=build_only,
                log=log,
            )
    except RefreshError as error:
        _report_error(error, data, output)
        return 1
    done, bad = published.done, published.bad
    data |= {"success": True, "accepts": [], "summary": done.summary, "decision": done.decision}
    data |= {"reason": getattr(done, "reason", ""), "warnings": [*getattr(done, "warnings", ())]}
    data |= {"bad_rows": bad.total if bad else 0, "bytes_sent": getattr(done, "sent", 0)}
    output.result(data, signed("=", done.summary), _left_out(bad))
    return 0


@contextmanager
def _in_data_folder() -> Generator[None]:
    """Replace an OSError in the data folder, for example of a read-only disk, by a SettingError."""
    try:
        yield
    except OSError as error:
        folder = shared_place("")
        if isinstance(folder, Path) and Path(str(error.filename)).is_relative_to(folder):
            raise SettingError(
                f"The data folder {folder} cannot be used ({error.strerror}): set "
                "PIPELINE_DATA_DIR to a folder that this user may write, and that stays"
            ) from error
        raise


def _report_error(error: RefreshError, data: Mapping[str, Any], output: Output) -> None:
    accepts = accepts_of(error.refusals) if isinstance(error, RefusedError) else []
    fix = " ".join(f"--accept {accept}" for accept in accepts)
    output.result(
        {**data, "success": False, "accepts": accepts, "reason": str(error)},
        signed("x", str(error)),
        Text(f"    -> the same command with {fix}") if fix else None,
    )


def _left_out(bad: BadRows | None) -> Text | None:
    if bad is None:
        return None
    rows = f"{bad.total:,} row{'s' * (bad.total > 1)} that do not fit the columns"
    return signed("!", f"Left out {rows}: {'; '.join(bad.examples)}")


def _reader(options: Sequence[str]) -> dict[str, str]:
    """Parse options such as "sep=;".

    Raises:
        click.UsageError: an option has no value.
    """
    if wrong := [option for option in options if "=" not in option]:
        raise click.UsageError(f'--reader {wrong[0]}: write an option and its value, "sep=;"')
    return dict(option.split("=", 1) for option in options)


def _use_data_folder() -> str:
    """If the environment names no data folder, use the folder of the project or of this user.

    In a source checkout of this package, without a project, keep the default folder.

    Returns:
        A note about the user's data folder if this publish will create it; otherwise "".
    """
    if root := _dagster_project():
        # Dagster is needed only here, to read the variables in the `.env` of the project.
        from tableau_pipeline.command_line.project import prepare

        prepare()
        if not (os.environ.get("PIPELINE_DATA_DIR") or os.environ.get("DAGSTER_HOME")):
            os.environ["PIPELINE_DATA_DIR"] = str(root / "data")
    is_named = os.environ.get("PIPELINE_DATA_DIR") or os.environ.get("DAGSTER_HOME")
    if is_named or in_checkout():
        return ""
    # Never use the current folder, because cron may start a job in any folder.
    folder = user_data_dir()
    os.environ["PIPELINE_DATA_DIR"] = str(folder)
    if folder.exists():
        return ""
    return (
        f"The rows and records of what you publish are kept in {folder}. If this machine keeps no "
        "files, the next publish is refused, because it finds no record of this one: then set "
        "PIPELINE_DATA_DIR to a folder that stays, or to a bucket, such as s3://bucket/folder"
    )


def _dagster_project() -> Path | None:
    """Return the root of the Dagster project around the current folder; None outside a project.

    Unlike `find_project`, this function does not import Dagster.

    Raises:
        SettingError: a pyproject.toml is damaged.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        try:
            settings = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
        except ValueError as error:
            # Do not skip this file: its project decides which data folder is used.
            raise SettingError(f"{file} cannot be read: {error}") from error
        if "project" in settings.get("tool", {}).get("dg", {}):
            return folder
    return None

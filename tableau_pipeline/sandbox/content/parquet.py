from pathlib import Path

from tableauhyperapi import Connection, CreateMode, HyperException, escape_string_literal

from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.sandbox.content.hyper_file import UnreadableFileError


def convert_parquet(parquet: Path, *, hyper_path: Path) -> None:
    """Make a `.hyper` file with the table "Extract"."Extract" of a Parquet file.

    Raises:
        UnreadableFileError: it is not one, or has columns for which Hyper has no type.
    """
    source = f"external({escape_string_literal(str(parquet))}, FORMAT => 'parquet')"
    try:
        with Connection(
            hyper_process().endpoint, hyper_path, CreateMode.CREATE_AND_REPLACE
        ) as connection:
            connection.execute_command('CREATE SCHEMA "Extract"')
            connection.execute_command(
                f'CREATE TABLE "Extract"."Extract" AS (SELECT * FROM {source})'  # noqa: S608
            )
    except HyperException as error:
        reason = str(error.main_message).replace(str(parquet), "that was uploaded")
        raise UnreadableFileError(reason) from error

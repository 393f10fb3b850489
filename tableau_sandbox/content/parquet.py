from pathlib import Path

from tableauhyperapi import CreateMode, HyperProcess

from tableau_sandbox.hyperd import connect, string_literal, with_hyperd


def convert_parquet(parquet: Path, *, hyper_path: Path) -> None:
    """Convert a Parquet file to a `.hyper` file with the table "Extract"."Extract".

    Raises:
        UnreadableFileError: it is not a Parquet file, or has columns for which Hyper has no type.
    """
    with_hyperd(lambda hyper: _convert(hyper, parquet, hyper_path), parquet, hyper_path)


def _convert(hyper: HyperProcess, parquet: Path, hyper_path: Path) -> None:
    source = f"external({string_literal(str(parquet))}, FORMAT => 'parquet')"
    with connect(hyper, hyper_path, CreateMode.CREATE_AND_REPLACE) as connection:
        connection.execute_command('CREATE SCHEMA "Extract"')
        connection.execute_command(
            f'CREATE TABLE "Extract"."Extract" AS (SELECT * FROM {source})'  # noqa: S608
        )

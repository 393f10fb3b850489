from pathlib import Path

from tableauhyperapi import CreateMode, HyperProcess, TableName

from tableau_pipeline.hyper.hyper_file import table_columns
from tableau_pipeline.hyper.process import connect

SPELT = {
    "BOOL": "BOOLEAN",
    "INT2": "SMALLINT",
    "INT": "INTEGER",
    "BIGINT": "BIGINT",
    "FLOAT8": "DOUBLE PRECISION",
    "REAL": "REAL",
    "DECIMAL(10, 2)": "NUMERIC(10,2)",
    "NUMERIC(18,0)": "NUMERIC(18,0)",
    "TEXT": "TEXT",
    'TEXT COLLATE "en_US_CI"': 'TEXT COLLATE "en_US_CI"',
    "CHARACTER VARYING(9)": "VARCHAR(9)",
    "CHAR(3)": "CHAR(3)",
    'CHAR(3) COLLATE "de"': 'CHAR(3) COLLATE "de"',
    "BYTEA": "BYTES",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
    "INTERVAL": "INTERVAL",
    "JSON": "JSON",
    "OID": "OID",
    "TABLEAU.TABGEOGRAPHY": "GEOGRAPHY",
    "UUID": "UNSUPPORTED(2950)",
}


def test_columns_of_all_tables(hyper: HyperProcess, tmp_path: Path):
    # Prevents: a table, a column or its order gets lost, or a name is quoted twice.
    path = tmp_path / "file.hyper"
    with connect(hyper, path, CreateMode.CREATE) as connection:
        connection.execute_command('CREATE SCHEMA "Extract"')
        connection.execute_command('CREATE TABLE "Extract"."b""" (z INT, "a "" b" TEXT NOT NULL)')
        connection.execute_command("CREATE TABLE a (x DATE)")
    columns = table_columns(hyper, path)
    assert columns == {
        TableName("Extract", 'b"'): {"z": "INTEGER", 'a " b': "TEXT"},
        TableName("public", "a"): {"x": "DATE"},
    }
    assert list(columns[TableName("Extract", 'b"')]) == ["z", 'a " b']


def test_every_type_has_one_spelling(hyper: HyperProcess, tmp_path: Path):
    # Prevents: one type is taken for two, two for one, or a file with a rare one cannot be read.
    path = tmp_path / "file.hyper"
    with connect(hyper) as connection:
        # The newest version, which alone holds REAL.
        connection.execute_command(f'CREATE DATABASE "{path}" WITH VERSION 4')
    with connect(hyper, path) as connection:
        columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(SPELT))
        connection.execute_command(f"CREATE TABLE t ({columns})")
    (types,) = table_columns(hyper, path).values()
    assert list(types.values()) == list(SPELT.values())

"""A table of a real PostgreSQL, published by `dg launch`."""

import json
import os
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.postgresql import PASSWORD, USER, running_postgresql
from tableau_pipeline_tests.refresh.support.pipeline import published_rows, session
from tableau_sandbox.testing import Sandbox

DRIVER = Path("/usr/share/java/postgresql.jar")
ORDERS = """
CREATE TABLE orders (
    id bigint PRIMARY KEY, price numeric(38,9), at timestamptz, note text, paid boolean
);
INSERT INTO orders VALUES
    (1, 12345678901234567890123456789.123456789, '2024-06-01 12:00+02', 'Grün 航', true),
    (2, NULL, NULL, NULL, NULL);
"""


def launch(folder: Path, environment: dict[str, str], **config: object) -> str:
    """The job as a user launches it; all that it printed."""
    run_config = {"ops": {"publish_files": {"config": config}}}
    done = subprocess.run(
        [Path(sys.executable).with_name("dg"), "launch", "--job", "publish_file",
         "--config-json", json.dumps(run_config)],
        cwd=ROOT, env={**os.environ, "DAGSTER_HOME": str(folder), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_table_of_postgresql(tableau_sandbox: Sandbox, tmp_path: Path):
    """Prevents: a table that takes code to publish, values that change, or a password in a log."""
    conf, home = tmp_path / "conf", tmp_path / "home"
    conf.mkdir()
    home.mkdir()
    (conf / "spark-defaults.conf").write_text(f"spark.driver.extraClassPath {DRIVER}\n")
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = {
        "SPARK_CONF_DIR": str(conf),
        "PIPELINE_DATA_DIR": str(tmp_path / "data"),
        "SHOP_USER": USER,
        "SHOP_PASSWORD": PASSWORD,
    }
    with running_postgresql() as database:
        database.run(ORDERS)
        config = {
            "path": f"jdbc:postgresql://127.0.0.1:{database.port}/postgres",
            "credentials": "SHOP",
            "table": "orders",
            "name": "Orders",
            "key": ["id"],
        }
        printed = launch(home, environment, **config)
        database.run("UPDATE orders SET note = 'new' WHERE id = 2")
        printed += launch(home, environment, **config)
    assert "Decision: update" in printed
    with session(tableau_sandbox) as site:
        (item,) = site.tsc.datasources.filter(name="Orders")
        rows = published_rows(site, str(item.id)).to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [
        {
            "id": 1,
            "price": Decimal("12345678901234567890123456789.123456789"),
            "at": datetime(2024, 6, 1, 10),
            "note": "Grün 航",
            "paid": True,
        },
        {"id": 2, "price": None, "at": None, "note": "new", "paid": None},
    ]
    recorded = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert b"postgresql://127.0.0.1" in recorded
    assert PASSWORD.encode() not in recorded + printed.encode()

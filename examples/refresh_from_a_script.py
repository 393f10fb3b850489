"""Keep a published data source equal to a CSV file, without Dagster, for instance from cron.

The variables TABLEAU_SERVER_URL, TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE name the server and the
token. Whenever the file may have changed, run

    python examples/refresh_from_a_script.py orders.csv data/

The first run publishes the file. Later runs send only changes. The folder `data/` keeps the state
between runs.
"""

import os
import sys
from pathlib import Path

from tableau_pipeline.scripting import (
    Declaration,
    PersonalAccessToken,
    Refreshed,
    RefreshError,
    Table,
    refresh,
    signed_in,
)
from tableau_pipeline.scripting.spark import (
    SnapshotStore,
    read_files,
    spark_session,
    write_snapshot,
)

ORDERS = Declaration(
    key="shop_orders",
    name="Shop Orders",
    project="Default",
    tables=(Table("orders", model="orders"),),
)


def main(csv: Path, data: Path) -> Refreshed:
    """Store the file as a snapshot, then refresh the data source."""
    token = PersonalAccessToken(os.environ["TABLEAU_TOKEN_NAME"], os.environ["TABLEAU_TOKEN_VALUE"])

    orders = read_files(spark_session(), csv, columns="id INT, amount DECIMAL(9,2)")
    store = SnapshotStore(data / "snapshots")
    write_snapshot(orders, store, asset_key="orders", run_id="script")

    return refresh(
        ORDERS,
        server=lambda: signed_in(os.environ["TABLEAU_SERVER_URL"], credentials=token),
        snapshots=data / "snapshots",
        journal=data / "journal",
        folder=data,
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} FILE.csv FOLDER")
    try:
        print(main(Path(sys.argv[1]), Path(sys.argv[2])).summary)
    except RefreshError as error:
        sys.exit(str(error))

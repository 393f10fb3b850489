"""Add shipments to a Delta table, as another team's job would: write_shipments.py ID..."""

import os
import sys

import pyarrow as pa
from deltalake import write_deltalake

if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    rows = pa.table({"shipment_id": numbers, "parcels": [number * 10 for number in numbers]})
    write_deltalake(f"{os.environ['SHOP_LAKE']}/shipments", rows, mode="append")

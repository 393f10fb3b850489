"""Add suppliers to a table of the Iceberg catalog `prod`: write_suppliers.py NAME..."""

import sys

import pyarrow as pa
from pyiceberg.catalog import load_catalog

if __name__ == "__main__":
    rows = pa.table({"name": sys.argv[1:], "rating": [len(each) for each in sys.argv[1:]]})
    catalog = load_catalog("prod")
    catalog.create_namespace_if_not_exists("shop")
    catalog.create_table_if_not_exists("shop.suppliers", rows.schema).append(rows)

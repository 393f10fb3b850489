"""Tables of a lake as models, read where they are: Delta Lake and Apache Iceberg."""

from tableau_pipeline.lake.tables import delta_version, iceberg_version

__all__ = ["delta_version", "iceberg_version"]

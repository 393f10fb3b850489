"""Use tables of Delta Lake and Apache Iceberg as models; read their files without copying rows."""

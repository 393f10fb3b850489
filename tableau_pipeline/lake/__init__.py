"""Tables of a lake as models, read where they are: Delta Lake and Apache Iceberg."""

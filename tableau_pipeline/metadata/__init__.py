"""Read, merge and edit the `.tds` of a data source, which contains its metadata."""

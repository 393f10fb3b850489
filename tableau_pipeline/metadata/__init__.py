"""Metadata of a data source: reading, merging and editing its `.tds`."""

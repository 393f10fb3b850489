"""The triggers that the data sources declare."""

from tableau_pipeline.components import automation

__all__ = ["automation"]

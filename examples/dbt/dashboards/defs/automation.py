"""The triggers that the data sources declare."""

from tableau_pipeline.components.automation import automation

__all__ = ["automation"]

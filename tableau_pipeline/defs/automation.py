"""The triggers of the data sources; PIPELINE_TRIGGERS and the web UI switch them on."""

from tableau_pipeline.components.automation import automation

__all__ = ["automation"]

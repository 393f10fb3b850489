"""What happens by itself, unless PIPELINE_TRIGGERS and the web UI leave it off."""

from tableau_pipeline.components.automation import automation

__all__ = ["automation"]

from tableau_pipeline.components.automation.automation import automation

__all__ = ["automation"]

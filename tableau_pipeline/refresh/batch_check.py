"""Where `tableau_pipeline.actions.validate` was; gone with the next release."""

from tableau_pipeline.actions.validate import batch_problems

__all__ = ["batch_problems"]

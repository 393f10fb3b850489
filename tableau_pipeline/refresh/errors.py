"""Where `tableau_pipeline.errors` was; gone with the next release."""

from tableau_pipeline.errors import BatchError, RefreshError, RefusedError

__all__ = ["BatchError", "RefreshError", "RefusedError"]

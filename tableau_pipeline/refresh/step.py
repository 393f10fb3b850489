"""Where `tableau_pipeline.refresh.refresh` was; gone with the next release."""

from tableau_pipeline.refresh.refresh import Refresh
from tableau_pipeline.refresh.report import Report

__all__ = ["Refresh", "Report"]

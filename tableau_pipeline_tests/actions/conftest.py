"""Servers of the refresh's tests serve these too."""

from tableau_pipeline_tests.refresh.conftest import eyes, server

__all__ = ["eyes", "server"]

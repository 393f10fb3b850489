"""The tests of action batches use the servers of the refresh tests."""

from tableau_pipeline_tests.refresh.conftest import eyes, server

__all__ = ["eyes", "server"]

import pytest
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.process import hyper_process


@pytest.fixture(scope="session")
def hyper() -> HyperProcess:
    """The hyperd of this process, which ends with it."""
    return hyper_process()

import pytest
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.process import hyper_process


@pytest.fixture(scope="module")
def hyper() -> HyperProcess:
    """The hyperd of this process, as long as no test has been the death of it."""
    return hyper_process()

import pytest
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.process import hyper_process


@pytest.fixture(scope="module")
def hyper() -> HyperProcess:
    """The hyperd of this process, if no test has killed it."""
    return hyper_process()

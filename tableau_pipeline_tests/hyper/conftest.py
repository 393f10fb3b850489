import pytest
from tableauhyperapi import HyperProcess

from tableau_pipeline.hyper.process import hyper_process


@pytest.fixture(scope="module")
def hyper() -> HyperProcess:
    """The hyperd that the tests of this process share."""
    return hyper_process()

import dagster as dg
import pytest

from tableau_pipeline.resources import TableauServerResource, resources_from_env
from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline.sandbox.testing import tableau_sandbox as tableau_sandbox


@pytest.mark.slow
def test_a_code_location_finds_the_sandbox(tableau_sandbox: Sandbox):
    # Prevents: users who cannot test their own location without a Tableau Server.
    with dg.build_resources(resources_from_env()) as resources:
        tableau: TableauServerResource = resources.tableau
        with tableau.session() as site:
            assert site.url == tableau_sandbox.url
            assert [project.name for project in site.tsc.projects.all()] == ["Default"]

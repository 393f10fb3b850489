from uuid import uuid4

import pytest

from tableau_pipeline.core.declaration import ProjectLuid
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.publishing.site import TableauSite

AWKWARD = [
    "R&D, Europe",
    "a,b",
    "a&b",
    "100% + 1",
    "Räume: größer",
    "who's [there]?",
    'say "x"',
    "a=b;c#d",
    "日本",
]


@pytest.fixture
def top() -> str:
    return f"Top {uuid4().hex[:8]}"


def named(tableau: TableauSite, name: str) -> list:
    return [each for each in tableau.tsc.projects.all() if each.name == name]


def test_path_is_created_below_its_parents(tableau: TableauSite, top: str):
    """Prevents: the projects of a path lie side by side."""
    created = tableau.project(f"{top}/Curated/2013", create=True)
    by_id = {project.id: project for project in tableau.tsc.projects.all()}
    leaf = by_id[created]
    assert [leaf.name, by_id[leaf.parent_id].name] == ["2013", "Curated"]
    assert by_id[by_id[leaf.parent_id].parent_id].name == top


def test_what_exists_is_not_created_again(tableau: TableauSite, top: str):
    """Prevents: every refresh creates a project, or fails because there is one."""
    created = tableau.project(f"{top}/Curated", create=True)
    assert tableau.project(f"{top}/Curated", create=True) == created
    assert tableau.project(f"{top}/Curated", create=False) == created
    assert tableau.project(f"{top} / Curated ", create=False) == created
    assert len(named(tableau, top)) == 1


def test_case_does_not_matter(tableau: TableauSite, top: str):
    """Prevents: "curated" cannot be created beside "Curated", which Tableau takes for the same."""
    created = tableau.project(f"{top}/Curated", create=True)
    assert tableau.project(f"{top.upper()}/CURATED", create=False) == created
    assert tableau.project(f"{top.lower()}/curated", create=True) == created


def test_same_name_below_two_parents(tableau: TableauSite, top: str):
    """Prevents: a data source lands in another department's project of the same name."""
    one = tableau.project(f"{top} A/Curated", create=True)
    other = tableau.project(f"{top} B/Curated", create=True)
    assert one != other
    assert tableau.project(f"{top} A/Curated", create=False) == one
    assert tableau.project(f"{top} B/Curated", create=False) == other


def test_nested_project_is_not_one_of_the_top(tableau: TableauSite, top: str):
    """Prevents: a project is found by its name where its path was not asked for."""
    tableau.project(f"{top}/Inner {top}", create=True)
    with pytest.raises(RefusedError, match="on the site"):
        tableau.project(f"Inner {top}", create=False)


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names(tableau: TableauSite, top: str, name: str):
    """Prevents: a comma or an ampersand in a name breaks the filter that looks for it."""
    path = f"{top}/{name}"
    created = tableau.project(path, create=True)
    assert tableau.project(path, create=False) == created
    assert tableau.project(path, create=True) == created


def test_names_that_hold_a_slash(tableau: TableauSite, top: str):
    """Prevents: a project "Sales/EU" cannot be named, or is taken for "EU" in "Sales"."""
    created = tableau.project((top, "Sales/EU"), create=True)
    assert [each.parent_id for each in named(tableau, "Sales/EU") if each.id == created]
    assert tableau.find_project((top.upper(), "SALES/EU")) == created
    assert tableau.project((top, "Sales/EU"), create=False) == created
    assert tableau.find_project(f"{top}/Sales/EU") is None
    with pytest.raises(RefusedError, match=f'"{top}/Sales/US".*"Sales/US" in "{top}"'):
        tableau.project((top, "Sales/US"), create=False)


@pytest.mark.parametrize("create", [True, False])
def test_luid_of_no_project(tableau: TableauSite, create: bool):
    """Prevents: a slip in a LUID is found out when all is built and uploaded."""
    nowhere = "00000000-0000-0000-0000-000000000000"
    assert tableau.find_project(ProjectLuid(nowhere)) is None
    with pytest.raises(RefusedError, match=f"no project {nowhere}.*`project:`"):
        tableau.project(ProjectLuid(nowhere), create=create)

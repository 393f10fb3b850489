import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableau_pipeline.hyper.build import Relationship, tree_problem

ON = (("id", "id"),)


def problem(tables: str, *edges: str) -> str | None:
    """The problem of tables such as "a b" and relationships such as "a>b"."""
    related = [Relationship(*edge.split(">"), on=ON) for edge in edges]
    return tree_problem(tables.split(), related)


@pytest.mark.parametrize(
    ("tables", "edges", "phrases"),
    [
        ("a b", [], ['"a", "b"', "exactly one fact table"]),
        ("a b c", ["a>b"], ['"a", "c"', "Connect every table"]),
        ("a b c", ["a>c", "b>c"], ['"c"', '"a"', '"b"', "one path"]),
        ("a b c d", ["a>b", "a>c", "b>d", "c>d"], ['"d"', '"b"', '"c"', "second copy"]),
        ("a b", ["a>b", "b>a"], ["circle: a -> b -> a. Leave one of"]),
        ("a b c d", ["b>c", "c>d", "d>b"], ["circle: b -> c -> d -> b"]),
        ("a", ["a>a"], ["circle: a -> a"]),
        ("a b", ["a>b", "a>b"], ['"b"', "two relationships"]),
    ],
    ids=[
        "two tables unrelated",
        "one table isolated",
        "two facts",
        "two paths",
        "circle of all",
        "circle beside a fact",
        "table at itself",
        "same relationship twice",
    ],
)
def test_other_shapes_are_explained(tables: str, edges: list[str], phrases: list[str]):
    """Prevents: Tableau refuses the file after it was built, in words that name no table."""
    found = problem(tables, *edges)
    assert found is not None
    for phrase in phrases:
        assert phrase in found


@given(data=st.data(), size=st.integers(1, 8))
def test_every_tree_passes_and_no_longer_does_with_one_edge_less(data: st.DataObject, size: int):
    """Prevents: the check depends on the order or number of the tables."""
    names = [f"t{number}" for number in range(size)]
    edges = [
        Relationship(names[data.draw(st.integers(0, number - 1))], names[number], ON)
        for number in range(1, size)
    ]
    shuffled = data.draw(st.permutations(names)), data.draw(st.permutations(edges))
    assert tree_problem(*shuffled) is None
    if edges:
        assert tree_problem(shuffled[0], shuffled[1][1:]) is not None

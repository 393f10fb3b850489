from pathlib import Path

import pytest

from tableau_sandbox.content.hyper_file import read_hyper_file
from tableau_sandbox.content.uploaded import NotPublishableError, check_bare_file
from tableau_sandbox_tests.samples import execute

FACT = 'CREATE TABLE "Extract".fact (a INT, b INT, c INT)'
A = 'CREATE TABLE "Extract".a (id INT NOT NULL, b INT, ASSUMED PRIMARY KEY (id))'
B = 'CREATE TABLE "Extract".b (id INT NOT NULL, a INT, ASSUMED PRIMARY KEY (id))'


def key(child: str, column: str, parent: str) -> str:
    return (
        f'ALTER TABLE "Extract".{child} ADD ASSUMED FOREIGN KEY ({column})'
        f' REFERENCES "Extract".{parent} (id)'
    )


STAR = (FACT, A, B, key("fact", "a", "a"), key("fact", "b", "b"))
SNOWFLAKE = (FACT, A, B, key("fact", "a", "a"), key("a", "b", "b"))


@pytest.mark.parametrize("statements", [STAR, SNOWFLAKE])
def test_trees_are_accepted(tmp_path: Path, statements: tuple[str, ...]):
    # Prevents: a sound star schema is refused.
    content = read_hyper_file(execute(tmp_path / "tree.hyper", *statements))
    check_bare_file(content)
    assert len(content.foreign_keys) == 2
    assert content.foreign_keys[-1].child == ("Extract", "fact")


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ((FACT, A), r'contains 2: "Extract"."a", "Extract"."fact"'),
        ((FACT, A, B, key("fact", "a", "a")), r'contains 2: "Extract"."b", "Extract"."fact"'),
        ((A, B, key("a", "b", "b"), key("b", "a", "a")), "contains 0: none"),
        (
            (FACT, A, B, key("a", "b", "b"), key("b", "a", "a")),
            r'leads from "Extract"."fact" to "Extract"."a", "Extract"."b"',
        ),
        (
            (FACT, A, key("fact", "a", "a"), key("fact", "b", "a")),
            r'more than one leads to "Extract"."a"',
        ),
        ((*STAR, key("a", "b", "b")), r'more than one leads to "Extract"."b"'),
    ],
)
def test_other_shapes_are_refused(tmp_path: Path, statements: tuple[str, ...], reason: str):
    # Prevents: tables that servers cannot relate are published here.
    content = read_hyper_file(execute(tmp_path / "other.hyper", *statements))
    with pytest.raises(NotPublishableError, match=reason):
        check_bare_file(content)

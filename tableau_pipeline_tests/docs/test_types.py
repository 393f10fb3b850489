"""The tables of `docs/reference/types.md` are those of the code."""

import re

import pytest

from tableau_pipeline.hyper.types import PRODUCTS, RULES, Column, file_version, hyper_type
from tableau_pipeline_tests.docs.page import page

PAGE = page("reference/types.md").whole.text
# Hyper's types without their precision, as Tableau Desktop calls them.
IN_TABLEAU = {
    "BOOLEAN": "Boolean",
    **dict.fromkeys(("SMALLINT", "INTEGER", "BIGINT"), "Number (whole)"),
    **dict.fromkeys(("DOUBLE PRECISION", "REAL", "NUMERIC"), "Number (decimal)"),
    "TEXT": "String",
    "BYTES": "(unknown)",
    "DATE": "Date",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), "Date & Time"),
}
ROWS = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (.+?) \| (.*)\|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("spark", "hyper", "tableau", "notes"), ROWS)
def test_each_row(spark: str, hyper: str, tableau: str, notes: str):
    """Prevents: readers plan for a type that they do not get."""
    column = Column("c", spark)
    assert hyper_type(column, table="t") == hyper
    assert IN_TABLEAU[hyper.partition("(")[0]] == tableau
    named = re.search(r"file version (\d)", notes)
    assert file_version([column]) == (int(named[1]) if named else 2)


def test_every_type_has_a_row():
    """Prevents: a type that we hold and nobody knows of."""
    patterns = [re.compile(rule.spark, re.IGNORECASE) for rule in RULES]
    assert all(any(each.fullmatch(row[0]) for row in ROWS) for each in patterns)


def test_versions():
    """Prevents: an administrator is told of the wrong products."""
    rows = re.findall(r"^\| (\d) \| .+? \| (.+?) \|$", PAGE, re.MULTILINE)
    assert {int(version): products for version, products in rows} == PRODUCTS

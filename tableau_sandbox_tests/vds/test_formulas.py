from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableau_sandbox.vds.errors import VdsError
from tableau_sandbox.vds.formulas import (
    Aggregate,
    Resolved,
    RowCount,
    TableCount,
    formula_type,
    parse_formula,
    resolve,
)
from tableau_sandbox.vds.functions import DataType, Function, result_type
from tableau_sandbox.vds.schema import Schema

NAMES = st.text("ab ]['\"\\.(),\nä😀", min_size=1)
SPACES = st.text(" \t\r\n", max_size=3)
FUNCTIONS = ("COUNT", "COUNTD", "SUM", "MIN", "MAX")
COLUMNS = {
    "amount": DataType.REAL,
    "number": DataType.INTEGER,
    "region": DataType.STRING,
    "orders": DataType.INTEGER,
    "place": DataType.SPATIAL,
}
TABLES = ("orders", "People")


def code_of(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(VdsError) as refused:
        call(*args, **kwargs)
    return refused.value.code


def resolved(text: str, schema: Schema = Schema.V20261) -> Resolved:
    return resolve(parse_formula(text), columns=COLUMNS, tables=TABLES, schema=schema)


def escaped(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


@st.composite
def written(draw: st.DrawFn, *tokens: str) -> str:
    """Tokens of a formula with white space between them, in any case except for a name."""
    cased = [
        token if token[0] == "[" else draw(st.sampled_from([token.upper(), token.lower()]))
        for token in tokens
    ]
    return "".join(draw(SPACES) + token for token in cased) + draw(SPACES)


@given(data=st.data(), function=st.sampled_from(FUNCTIONS), name=NAMES)
def test_aggregates(data: st.DataObject, function: str, name: str):
    """Prevents: a formula is refused for its white space, its case or a bracket in a name."""
    text = data.draw(written(function, "(", escaped(name), ")"))
    assert parse_formula(text) == Aggregate(Function(function), name)


@given(data=st.data(), name=NAMES)
def test_row_counts(data: st.DataObject, name: str):
    """Prevents: the sum of ones, which counts rows on older servers, is refused."""
    tokens = ("SUM", "(", "IIF", "(", "ISNULL", "(", escaped(name), ")", ",", "1", ",", "1", ")")
    assert parse_formula(data.draw(written(*tokens, ")"))) == RowCount(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[amount]",
        "COUNT()",
        "COUNT([])",
        "COUNT(amount)",
        "COUNT([amount]",
        "COUNT([amount]))",
        "COUNT([a]b])",
        "COUNT([amount]])",
        "COUNT([a],[b])",
        "COUNT([orders].[amount])",
        "COUNT ([amount]) + 1",
        "COUNT(1)",
        "SUM(1)",
        "AVG([amount])",
        "MEDIAN([amount])",
        "\u017fUM([amount])",
        "CO UNT([amount])",
        "SUM(IIF(ISNULL([amount]), 1, 0))",
        "SUM(IIF(ISNULL([amount]), 0, 1))",
        "SUM(IIF(ISNULL([amount]), 1, 1, 1))",
        "SUM(IIF(ISNULL([amount]), 1, 11))",
        "COUNT(IIF(ISNULL([amount]), 1, 1))",
        "{FIXED : COUNT([amount])}",
        "COUNT([amount]) // rows",
        "RAWSQL_INT('1')",
    ],
)
def test_other_formulas(text: str):
    """Prevents: a formula is taken for another one, and its answer is wrong."""
    assert code_of(parse_formula, text) == "400800"


@given(st.text("COUNTDSMIAX([a]) ,1", max_size=40))
def test_any_text(text: str):
    """Prevents: a text brings the sandbox down instead of being refused."""
    try:
        outcome = type(parse_formula(text))
    except VdsError as error:
        outcome = error.code
    assert outcome in (Aggregate, RowCount, "400800")


@pytest.mark.parametrize(
    ("text", "expected", "data_type"),
    [
        ("COUNT([People])", TableCount("People"), DataType.INTEGER),
        ("COUNT([orders])", Aggregate(Function.COUNT, "orders"), DataType.INTEGER),
        ("COUNT([region])", Aggregate(Function.COUNT, "region"), DataType.INTEGER),
        ("COUNTD([region])", Aggregate(Function.COUNTD, "region"), DataType.INTEGER),
        ("MAX([region])", Aggregate(Function.MAX, "region"), DataType.STRING),
        ("SUM([amount])", Aggregate(Function.SUM, "amount"), DataType.REAL),
        ("SUM([number])", Aggregate(Function.SUM, "number"), DataType.INTEGER),
        ("SUM(IIF(ISNULL([region]),1,1))", RowCount("region"), DataType.INTEGER),
    ],
)
def test_columns_and_tables(text: str, expected: Resolved, data_type: DataType):
    """Prevents: a table is counted where a column was meant, or the other way round."""
    assert resolved(text) == expected
    assert formula_type(expected, columns=COLUMNS) is data_type


@pytest.mark.parametrize(
    "text",
    [
        "COUNT([nothing])",
        "COUNT([people])",
        "COUNTD([People])",
        "SUM([People])",
        "SUM([region])",
        "COUNT([place])",
        "SUM(IIF(ISNULL([People]),1,1))",
        "SUM(IIF(ISNULL([nothing]),1,1))",
    ],
)
def test_names_that_do_not_fit(text: str):
    """Prevents: a formula about nothing, or about the wrong type, gets an answer."""
    assert code_of(resolved, text) == "400800"


def test_tables_on_older_versions():
    """Prevents: a client counts tables on a server that cannot, and learns it in production."""
    for schema in Schema:
        if schema < Schema.V20261:
            assert code_of(resolved, "COUNT([People])", schema) == "400800"
        else:
            assert resolved("COUNT([People])", schema) == TableCount("People")
        assert resolved("COUNT([region])", schema) == Aggregate(Function.COUNT, "region")


@pytest.mark.parametrize(
    ("function", "data_type", "expected"),
    [
        ("COUNTD", DataType.STRING, DataType.INTEGER),
        ("QUARTER", DataType.DATE, DataType.INTEGER),
        ("TRUNC_WEEK", DataType.DATETIME, DataType.DATETIME),
        ("MIN", DataType.BOOLEAN, DataType.BOOLEAN),
        ("SUM", DataType.INTEGER, DataType.INTEGER),
        ("SUM", DataType.REAL, DataType.REAL),
        ("AVG", DataType.INTEGER, DataType.REAL),
    ],
)
def test_result_types(function: str, data_type: DataType, expected: DataType):
    """Prevents: an answer writes a whole number with a fraction, or a date as a number."""
    assert result_type(Function(function), data_type) is expected

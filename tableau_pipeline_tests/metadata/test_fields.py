import re
from typing import Any

import pytest
from pydantic import ValidationError

from tableau_pipeline.core.fields import (
    Calculation,
    FieldError,
    FieldMetadata,
    Members,
    declared_values,
)
from tableau_pipeline.metadata.formats import fault_in_format, misfit, tableau_format
from tableau_pipeline.metadata.merge import Values

COLUMNS = {"orders": ["net", "gross", "who"], "people": ["who", "a]b"]}


def values(*, columns: dict[str, list[str]] = COLUMNS, **parts: Any) -> Values:
    empty: dict[str, Any] = {"fields": {}, "calculations": [], "hierarchies": [], "folders": []}
    return declared_values(**{**empty, **parts}, columns=columns, published=lambda table: table)


def calculation(formula: str, name: str = "Margin") -> Calculation:
    return Calculation(name=name, formula=formula)


@pytest.mark.parametrize(
    ("formula", "found"),
    [
        ("SUM([net]) / SUM([orders.gross])", "SUM([orders.net]) / SUM([orders.gross])"),
        ("[Net amount] + [a]]b]", "[orders.net] + [people.a]]b]"),
        ("2 * [Other]", "2 * [Other]"),
        ("\"[nte]\" + '[nte]' // [nte]", "\"[nte]\" + '[nte]' // [nte]"),
        ("/* [nte]\n*/ [net]", "/* [nte]\n*/ [orders.net]"),
        ("[Parameters].[Top n] - [net]", "[Parameters].[Top n] - [orders.net]"),
        ("'it''s [nte]' + STR([net])", "'it''s [nte]' + STR([orders.net])"),
    ],
)
def test_formulas(formula: str, found: str):
    # Prevents: a published formula names another field than its author meant.
    fields = {"orders": [FieldMetadata(name="net", caption="Net amount")]}
    asked = values(fields=fields, calculations=[calculation(formula), calculation("1", "Other")])
    assert asked["calculation", "Margin", "formula"] == found


def test_a_single_table_needs_no_name():
    # Prevents: users see the internal name of a data source's only table in their formulas.
    asked = values(columns={"Extract": ["net"]}, calculations=[calculation("[net]")])
    assert asked["calculation", "Margin", "formula"] == "[net]"


@pytest.mark.parametrize(
    ("parts", "at", "message"),
    [
        ({"calculations": [calculation("[nte]")]}, ("calculations", "Margin", "formula"),
         '"nte" is neither a column nor a calculation: did you mean "net"'),
        ({"calculations": [calculation("[who]")]}, ("calculations", "Margin", "formula"),
         r"several tables have a column .* write orders\.who or people\.who"),
        ({"calculations": [calculation("1", "net")]}, ("calculations", "net"), "a column is named"),
        ({"fields": {"orders": [FieldMetadata(name="nte")]}}, ("tables", "orders", "fields", "nte"),
         'not a column of the table "orders": did you mean "net"'),
        ({"fields": {"orders": [FieldMetadata(name="net", caption="Margin")]},
          "calculations": [calculation("1")]},
         ("tables", "orders", "fields", "net", "caption"), 'name "Margin", which .* has, too'),
        ({"fields": {"orders": [FieldMetadata(name="net", caption=" gross ")]}},
         ("tables", "orders", "fields", "net", "caption"), 'name "gross", which orders.gross has'),
        ({"fields": {"orders": [FieldMetadata(name="net", caption="who")]}},
         ("tables", "orders", "fields", "net", "caption"), 'name "who", which orders.who has'),
        ({"calculations": [calculation("1"), calculation("2", " Margin")]},
         ("calculations", " Margin"), 'name "Margin", which the calculation "Margin" has, too'),
        ({"fields": {"orders": [FieldMetadata(name="net", caption="A")]},
          "inherited": {("people", "a]b"): FieldMetadata(caption="A\x00")}},
         ("tables", "people", "fields", "a]b", "caption"), 'name "A", which orders.net has, too'),
        ({"fields": {"orders": [FieldMetadata(name="net", folder="A")]},
          "folders": [Members(name="B", fields=("net",))]}, ("folders", "B"), 'in the folder "A"'),
        ({"hierarchies": [Members(name="R", fields=("net", "x"))]}, ("hierarchies", "R"), '"x"'),
    ],
)  # fmt: skip
def test_mistakes(parts: dict[str, Any], at: tuple[str, ...], message: str):
    # Prevents: metadata of a missing field is published, or the error does not locate the mistake.
    with pytest.raises(FieldError, match=message) as caught:
        values(**parts)
    assert caught.value.at == at


def test_captions_may_swap():
    """Prevents: a declaration that swaps the captions of two columns is refused."""
    fields = [FieldMetadata("net", caption="gross"), FieldMetadata("gross", caption="net")]
    assert len(values(fields={"orders": fields})) == 2


def test_descriptions():
    # Prevents: an inherited description replaces the declared one, or belongs to a missing column.
    fields = {"orders": [FieldMetadata(name="net", description="Ours\x00\n")]}
    said = {"net": "Theirs", "who": "Who", "gone": "x"}
    inherited = {("orders", name): FieldMetadata(description=text) for name, text in said.items()}
    assert values(fields=fields, inherited=inherited) == {
        ("field", "orders", "net", "description"): "Ours",
        ("field", "orders", "who", "description"): "Who",
    }


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("#,##0.00", "n#,##0.00;-#,##0.00"),
        ("#,##0;(#,##0)", "n#,##0;(#,##0)"),
        ("0.0%", "p0.0%"),
        ("$#,##0", 'c"$"#,##0;-"$"#,##0'),
        ('"kr "#,##0', 'c"kr "#,##0;-"kr "#,##0'),
        ('c"€"#,##0;("€"#,##0)', 'c"€"#,##0;("€"#,##0)'),
        ('#,##0 "k;m"', 'n#,##0 "k;m";-#,##0 "k;m"'),
        ("n0", "n0;-0"),
        ("yyyy-MM-dd", "*yyyy-MM-dd"),
        ("hh:mm:ss.000", "*hh:mm:ss.000"),
        ('"Q"q yyyy', '*"Q"q yyyy'),
        ("*00000", "*00000"),
        ("C1033%", "C1033%"),
    ],
)
def test_formats(written: str, found: str):
    # Prevents: Tableau ignores a format, or completes it so that the data source looks edited.
    assert tableau_format(written) == found
    assert fault_in_format(written) is None


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("dd.mm.jjjj", 'a date format has no "j"'),
        ("yyyy-MM-ddTHH:mm", 'no "T", unless it is in quotes'),
        ("#,##0 EUR", "text of a number format goes in quotes"),
        ("n0 kr", "text of a number format goes in quotes"),
        ("0,00", "a comma separates thousands, and a point separates decimals"),
        ('#.##0,00" EUR"', "a comma separates thousands, and a point separates decimals"),
        ("#,##0;(#.##0,0)", "a comma separates thousands, and a point separates decimals"),
    ],
)
def test_formats_that_tableau_does_not_know(written: str, problem: str):
    """Prevents: all users see a column as "1234jjjj", or as a hundred times its value."""
    with pytest.raises(ValidationError, match=re.escape(problem)):
        FieldMetadata(format=written)
    assert FieldMetadata(format=f"*{written}").format == f"*{written}"


@pytest.mark.parametrize("good", ["0E+00", '#,##0,,"M"', "#,#", "#,##,##0", "h:mm AM/PM", "*", ""])
def test_formats_that_are_rare(good: str):
    """Prevents: the pipeline refuses a rare format that Tableau knows."""
    assert fault_in_format(good) is None


@pytest.mark.parametrize(
    ("written", "datatype", "fits"),
    [
        *(("#,##0", "real", True), ("#,##0", "integer", True), ("#,##0", "string", False)),
        *(("yyyy-MM-dd", "date", True), ("yyyy-MM-dd", "datetime", True)),
        *(("yyyy-MM-dd", "string", False), ("yyyy-MM-dd", "real", False), ("0%", "date", False)),
        *(("C1033%", "real", True), ("*", "string", True), ("", "boolean", True)),
    ],
)
def test_formats_of_types(written: str, datatype: str, *, fits: bool):
    """Prevents: Tableau ignores a format because it does not fit the type of its column."""
    for text in (written, tableau_format(written)):
        assert (misfit(text, datatype) is None) is fits


def test_a_calculation_has_a_format_of_its_type():
    """Prevents: a calculation of the default type, real, gets a date format that has no effect."""
    with pytest.raises(ValidationError, match="'yyyy-MM-dd' is a date format"):
        Calculation(name="Day", formula="TODAY()", format="yyyy-MM-dd")
    assert Calculation(name="Day", formula="TODAY()", format="yyyy-MM-dd", type="date")


@pytest.mark.parametrize(
    ("formulas", "message"),
    [
        ({"A": "[B] + 1", "B": "[C]", "C": "[A]"}, r"A, B, C, A"),
        ({"A": "[A] + [net]"}, "A, A"),
        ({"X": "[A]", "A": "[B]", "B": "[A]"}, "A, B, A"),
        ({"A": "SUM([net)"}, r"\[ is not closed"),
        ({"A": "SUM(net])"}, r"\] closes nothing"),
        ({"A": "SUM([net]"}, r"\( is not closed"),
        ({"A": "SUM([net]))"}, r"\) closes nothing"),
        ({"A": "{FIXED [net]: SUM([net])"}, r"\{ is not closed"),
        ({"A": "([net]}"}, r"\} closes nothing"),
        ({"A": "'Rome + [net]"}, "' is not closed"),
        ({"A": " \n\x00"}, "it is empty"),
        ({"A": "// nothing\n/* at all */"}, "it is empty"),
    ],
)
def test_formulas_that_mean_nothing(formulas: dict[str, str], message: str):
    """Prevents: a circular, unbalanced or empty formula is published or silently left out."""
    with pytest.raises(FieldError, match=message) as caught:
        values(calculations=[calculation(each, name) for name, each in formulas.items()])
    assert caught.value.at == ("calculations", "A", "formula")


@pytest.mark.parametrize(
    "formula",
    [
        "{ FIXED [net] : SUM([gross]) }",
        "REGEXP_MATCH(STR([net]), '^[(\"]$') // it's (",
        "/* [ */ IF \"[\" = '{' THEN #2020-01-31# ELSE [a]]b] END",
    ],
)
def test_brackets_in_texts_and_comments(formula: str):
    """Prevents: a valid formula is refused because of brackets in its texts or comments."""
    assert values(calculations=[calculation(formula)])

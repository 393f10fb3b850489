"""Queries by VizQL Data Service: counts, keys, and what is refused in them."""

from typing import Any

from tableau_sandbox.facts.answer import NotShown, expect
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import rows_file
from tableau_sandbox.facts.playground import Playground
from tableau_sandbox.facts.sources import MCP, NOBODY, VDS_HELP
from tableau_sandbox.facts.vds.asking import about, query, refused, rows

_QUERY = "POST vizql-data-service/query-datasource"
_COUNT = {"fieldCaption": "name", "function": "COUNT"}


def _formula(text: str) -> dict[str, Any]:
    return {"fieldCaption": "number of rows", "calculation": text}


@writes(_QUERY, VDS_HELP)
def count_of_a_column(play: Playground) -> None:
    """COUNT of a column counts its values, not NULL, under the key COUNT(caption)."""
    target = play.published(rows_file((1, "one"), (2, None), (3, "one")))
    expect([{"COUNT(name)": 2}], rows(query(play.scene, target.luid, _COUNT)))


@writes(_QUERY, VDS_HELP)
def count_of_a_table(play: Playground) -> None:
    """COUNT of a logical table, by its caption, is the number of its rows."""
    target = play.published(rows_file((1, None), (2, None), (3, "one")))
    tables = about(play.scene, "get-datasource-model", target.luid)["logicalTables"]
    answer = query(play.scene, target.luid, _formula(f"COUNT([{tables[0]['caption']}])"))
    if answer.status == 400:
        raise NotShown("the server's VizQL Data Service counts no tables")
    expect([{"number of rows": 3}], rows(answer))


@writes(_QUERY, NOBODY)
def count_by_a_constant(play: Playground) -> None:
    """A sum of ones by ISNULL of a column is the number of rows of its table."""
    target = play.published(rows_file((1, None), (2, None), (3, "one")))
    answer = query(play.scene, target.luid, _formula("SUM(IIF(ISNULL([name]),1,1))"))
    expect([{"number of rows": 3}], rows(answer))


@writes(_QUERY, NOBODY)
def count_of_nothing(play: Playground) -> None:
    """An aggregate over no rows is answered without a row."""
    target = play.published(rows_file())
    expect([], rows(query(play.scene, target.luid, _COUNT)))


@writes(_QUERY, VDS_HELP)
def rows_by_dimension(play: Playground) -> None:
    """A query has a row for each value of its dimensions."""
    target = play.published(rows_file((1, "one"), (2, "two"), (3, "one")))
    sorted_names = {"fieldCaption": "name", "sortPriority": 1}
    answer = query(play.scene, target.luid, sorted_names, {**_COUNT, "fieldAlias": "n"})
    if answer.status == 400:
        # Some versions take a field only once, whatever its functions.
        raise NotShown("the server does not take a field twice")
    expect([{"name": "one", "n": 2}, {"name": "two", "n": 1}], rows(answer))


@writes(_QUERY, VDS_HELP)
def rows_as_arrays(play: Playground) -> None:
    """With the format ARRAYS, rows are arrays in the order of the fields."""
    options = {"returnFormat": "ARRAYS"}
    answer = query(play.scene, play.shared.luid, _COUNT, options=options)
    expect([[2]], rows(answer))


@writes(_QUERY, VDS_HELP)
def unknown_field_of_a_query(play: Playground) -> None:
    """A query of an unknown field is refused with 400803 or 404934."""
    answer = query(play.scene, play.shared.luid, {"fieldCaption": "no such field"})
    refused(answer, "400803", "404934")


@writes(_QUERY, MCP)
def unknown_option_of_a_query(play: Playground) -> None:
    """A query with an option that the server does not know is refused with 400802."""
    options = {"noSuchOption": False}
    refused(query(play.scene, play.shared.luid, _COUNT, options=options), "400802")


@writes(_QUERY, VDS_HELP)
def invalid_formula_of_a_query(play: Playground) -> None:
    """A query with an invalid formula is refused with 400800."""
    refused(query(play.scene, play.shared.luid, _formula("COUNT([")), "400800")

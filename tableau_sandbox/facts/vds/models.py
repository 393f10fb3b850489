"""Data sources with several tables, and with unusual names and values, in VizQL Data Service."""

from tableau_sandbox.facts.answer import NotShown, expect
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import hyper_file, table_file
from tableau_sandbox.facts.playground import Playground, Published
from tableau_sandbox.facts.sources import NOBODY, TWB, VDS_HELP, VDS_OPENAPI
from tableau_sandbox.facts.vds.asking import about, query, rows

_QUERY = "POST vizql-data-service/query-datasource"
_MODEL = "POST vizql-data-service/get-datasource-model"
# A JSON number of this size is another one for programs that read it as a double.
_LARGE = 2**53 + 1


def _two_tables(play: Playground) -> Published:
    file = hyper_file(
        'CREATE TABLE "Extract"."One" (id INTEGER NOT NULL, ASSUMED PRIMARY KEY (id))',
        'CREATE TABLE "Extract"."Two" (id INTEGER)',
        'ALTER TABLE "Extract"."Two" ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract"."One" (id)',
        'INSERT INTO "Extract"."One" VALUES (1), (2), (3)',
        'INSERT INTO "Extract"."Two" VALUES (1), (NULL)',
    )
    return play.published(file)


@writes(_MODEL, VDS_OPENAPI)
def relationships_of_tables(play: Playground) -> None:
    """Assumed foreign keys become relationships of logical tables."""
    model = about(play.scene, "get-datasource-model", _two_tables(play).luid)
    captions = {each["logicalTableId"]: each["caption"] for each in model["logicalTables"]}
    expect({"One", "Two"}, set(captions.values()))
    (found,) = model["logicalTableRelationships"]
    ends = (found[f"{end}LogicalTable"]["logicalTableId"] for end in ("from", "to"))
    expect({"One", "Two"}, {captions[each] for each in ends})


@writes("POST vizql-data-service/read-metadata", TWB)
def columns_of_one_name(play: Playground) -> None:
    """Of two columns with one name, that of the second table has its table in its caption."""
    target = _two_tables(play)
    model = about(play.scene, "get-datasource-model", target.luid)
    tables = {each["logicalTableId"]: each["caption"] for each in model["logicalTables"]}
    fields = about(play.scene, "read-metadata", target.luid)["data"]
    expect(2, len(fields))
    told = {each["fieldCaption"]: tables[each["logicalTableId"]] for each in fields}
    (other,) = [caption for caption in told if caption != "id"]
    expect(f"id ({told[other]})", other)


@writes(_QUERY, VDS_HELP)
def count_of_one_of_two_tables(play: Playground) -> None:
    """In a data source of two tables, COUNT of each counts its own rows."""
    target = _two_tables(play)
    for table, count in (("One", 3), ("Two", 2)):
        field = {"fieldCaption": "n", "calculation": f"COUNT([{table}])"}
        answer = query(play.scene, target.luid, field)
        if answer.status == 400:
            raise NotShown("the server's VizQL Data Service counts no tables")
        expect([{"n": count}], rows(answer))


@writes(_QUERY, NOBODY)
def large_numbers(play: Playground) -> None:
    """Whole numbers beyond 2^53 come with all their digits."""
    target = play.published(table_file("id BIGINT", f"({_LARGE})"))
    answer = query(play.scene, target.luid, {"fieldCaption": "id", "function": "MAX"})
    expect([{"MAX(id)": _LARGE}], rows(answer))


@writes(_QUERY, NOBODY)
def brackets_in_names(play: Playground) -> None:
    """In a formula, a bracket at the end of a name is written twice."""
    target = play.published(table_file('"a]b" INTEGER', "(1)", "(2)"))
    field = {"fieldCaption": "n", "calculation": "SUM([a]]b])"}
    expect([{"n": 3}], rows(query(play.scene, target.luid, field)))


@writes(_QUERY, VDS_HELP)
def fresh_answers(play: Playground) -> None:
    """A query may ask to bypass caches."""
    field = {"fieldCaption": "name", "function": "COUNT", "fieldAlias": "n"}
    options = {"bypassMetadataCache": True}
    answer = query(play.scene, play.shared.luid, field, options=options)
    if answer.status == 400:
        raise NotShown("the server's VizQL Data Service does not know bypassMetadataCache")
    expect([{"n": 2}], rows(answer))

"""Bodies of queries that a client could send, and bodies that none should."""

import json
import operator
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tableau_sandbox.vds.functions import APPLICABLE, NUMBERS, DataType

Json = Any

TYPES = (
    'CREATE TABLE "Extract"."odd ] ""table""" ('
    'i INT, big BIGINT, n NUMERIC(18, 2), x DOUBLE PRECISION, t TEXT, c CHAR(3), "a ] b" TEXT,'
    ' "qu""ote" VARCHAR(9), f BOOL, d DATE, ts TIMESTAMP, tz TIMESTAMPTZ, tm TIME, bin BYTES,'
    " geo GEOGRAPHY)",
    *(
        f'INSERT INTO "Extract"."odd ] ""table""" VALUES ({row})'
        for row in (
            "1, 9223372036854775807, 0.1, 'NaN'::DOUBLE PRECISION, 'one', 'ab', 'x', 'y', TRUE,"
            " DATE '2024-02-29', TIMESTAMP '2024-02-29 23:59:59.999999',"
            " TIMESTAMPTZ '2024-02-29 23:59:59+02', TIME '01:02', NULL, NULL",
            "2, 9223372036854775807, -0.2, 'Infinity'::DOUBLE PRECISION, '', NULL, '\\', '\"',"
            " FALSE, DATE '0001-01-01', TIMESTAMP '0001-01-01', NULL, NULL, NULL, NULL",
            ", ".join(["NULL"] * 15),
        )
    ),
)
TABLE = 'odd ] "table"'
TYPE_OF: dict[str, DataType] = {
    **dict.fromkeys(("i", "big"), DataType.INTEGER),
    **dict.fromkeys(("n", "x"), DataType.REAL),
    **dict.fromkeys(("t", "c", "a ] b", 'qu"ote'), DataType.STRING),
    "f": DataType.BOOLEAN,
    "d": DataType.DATE,
    **dict.fromkeys(("ts", "tz"), DataType.DATETIME),
    **dict.fromkeys(("tm", "bin"), DataType.UNKNOWN),
    "geo": DataType.SPATIAL,
}
# Those that have values in JSON.
USABLE = [name for name, kind in TYPE_OF.items() if APPLICABLE[kind]]
NUMERIC = [name for name in USABLE if TYPE_OF[name] in NUMBERS]

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
odd_texts = st.text(max_size=6) | st.sampled_from(["%", "_", "\\", "'", "\x00", "\ud800"])
numbers = st.integers() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False)
dates = st.dates().map(str)


def _some(values: st.SearchStrategy) -> st.SearchStrategy[list]:
    return st.lists(values, min_size=1, max_size=3)


def _named(*names: str, **more: Any) -> st.SearchStrategy[Json]:
    return st.sampled_from(names).map(lambda name: {"fieldCaption": name, **more})


def _formula(function: str, name: str) -> str:
    return f"{function}([{name.replace(']', ']]')}])"


formulas = st.sampled_from(
    [
        _formula("COUNT", TABLE),
        *(_formula(function, name) for function in ("COUNT", "MIN") for name in USABLE),
        *(_formula("SUM", name) for name in NUMERIC),
        *(f"SUM(IIF(ISNULL([{name.replace(']', ']]')}]),1,1))" for name in USABLE),
    ]
)
measures = st.sampled_from(
    [
        {"fieldCaption": name, "function": function}
        for name in USABLE
        for function in sorted(APPLICABLE[TYPE_OF[name]])
    ]
)
extras = st.fixed_dictionaries(
    {},
    optional={
        "maxDecimalPlaces": st.integers(0, 400),
        "sortDirection": st.sampled_from(["ASC", "DESC"]),
    },
)
calculations = st.builds(
    lambda number, formula: {"fieldCaption": f"calculation {number}", "calculation": formula},
    st.integers(0, 9),
    formulas,
)
fields = st.builds(operator.or_, _named(*USABLE) | measures | calculations, extras)


def _filter(kind: str, field: st.SearchStrategy, **more: Any) -> st.SearchStrategy[Json]:
    fixed = {name: each for name, each in more.items() if name in ("values", "contains")}
    return st.fixed_dictionaries(
        {"field": field, "filterType": st.just(kind), **fixed},
        optional={name: each for name, each in more.items() if name not in fixed},
    )


def _range(kind: str, field: st.SearchStrategy, low: str, high: str, bound: Any) -> Any:
    several = {"RANGE": (low, high), "MIN": (low,), "MAX": (high,), "ONLY_NULL": ()}
    return st.sampled_from(sorted(several)).flatmap(
        lambda bounds: st.fixed_dictionaries(
            {
                "field": field,
                "filterType": st.just(kind),
                "quantitativeFilterType": st.just(bounds),
                **dict.fromkeys(several[bounds], bound),
            },
            optional={"includeNulls": st.booleans()},
        )
    )


_excluding = {"exclude": st.booleans()}
filters = st.one_of(
    _filter("SET", _named("i", "n", "x"), values=_some(st.none() | numbers), **_excluding),
    _filter("SET", _named("t", "a ] b"), values=_some(st.none() | texts), **_excluding),
    _filter("SET", _named("f"), values=_some(st.none() | st.booleans()), **_excluding),
    _filter(
        "MATCH",
        _named("t", "c"),
        contains=texts.filter(bool),
        startsWith=texts,
        endsWith=texts,
        **_excluding,
    ),
    _range("QUANTITATIVE_NUMERICAL", _named(*NUMERIC), "min", "max", numbers),
    _range("QUANTITATIVE_NUMERICAL", _named(*USABLE, function="COUNT"), "min", "max", numbers),
    _range("QUANTITATIVE_DATE", _named("d", "ts", "tz"), "minDate", "maxDate", dates),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "returnFormat": st.sampled_from(["OBJECTS", "ARRAYS"]),
        "rowLimit": st.integers(1, 9),
        "returnServerSentEvents": st.booleans(),
        "interpretFieldCaptionsAsFieldNames": st.just(False),
    },
)


def queries(luid: str) -> st.SearchStrategy[Json]:
    """Sound queries of the table above."""
    some_fields = st.lists(
        fields, min_size=1, max_size=3, unique_by=operator.itemgetter("fieldCaption")
    )
    some_filters = st.lists(
        filters, min_size=1, max_size=2, unique_by=lambda each: str(each["field"])
    )
    query = st.fixed_dictionaries({"fields": some_fields}, optional={"filters": some_filters})
    return st.fixed_dictionaries(
        {"datasource": st.just({"datasourceLuid": luid}), "query": query},
        optional={"options": options},
    )


def _leaves(value: Json, path: tuple = ()) -> Iterator[tuple]:
    yield path
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield from _leaves(value[key], (*path, key))


_anything = st.recursive(
    st.none() | st.booleans() | numbers | odd_texts | st.just(float("nan")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_texts, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def spoilt(draw: st.DrawFn, body: Json) -> bytes:
    """The bytes of a body in which something is missing, added or replaced."""
    spoiled = {"whole": json.loads(json.dumps(body))}
    path = ("whole", *draw(st.sampled_from(list(_leaves(body)))))
    parent: Json = spoiled
    for key in path[:-1]:
        parent = parent[key]
    kind = draw(st.sampled_from(["replace", "remove", "add", "bytes"]))
    if kind == "remove" and len(path) > 1:
        del parent[path[-1]]
    elif kind == "add" and isinstance(parent[path[-1]], dict):
        parent[path[-1]][draw(odd_texts)] = draw(_anything)
    else:
        parent[path[-1]] = draw(_anything)
    written = json.dumps(spoiled["whole"]).encode()
    if kind == "bytes":
        place = draw(st.integers(0, len(written)))
        written = written[:place] + draw(st.binary(max_size=3)) + written[place + 1 :]
    return written

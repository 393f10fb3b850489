"""Row filters in the forms in which Tableau's products save them. The names are made up.

The forms come from public data sources and workbooks: ticked members, ranges, periods, conditions,
sets and groups of values. Some sets have different members for each user or group of users.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tableau_pipeline_tests.metadata.shapes import SHAPES, USER, Shape

_CHOSEN = "user:ui-domain='database' user:ui-enumeration='inclusive' user:ui-marker='enumerate'"
_ALL = "user:ui-enumeration='all' user:ui-marker='enumerate'"


class RowFilter(NamedTuple):
    """A row filter of a `.tds`.

    Attributes:
        xml: the fields and sets that the filter needs, and then the filter itself.
        uses: the columns that the filter uses.
        names: the phrases by which the pipeline names the filter.
    """

    xml: str
    uses: tuple[str, ...]
    names: tuple[str, ...]


def _filter(column: str, inner: str, more: str = "") -> str:
    return f"<filter class='categorical' column='{column}'{more}>{inner}</filter>"


def _every(level: str, marks: str = "") -> str:
    return f"<groupfilter function='level-members' level='{level}' {marks}/>"


def _member(level: str, value: str, marks: str = "") -> str:
    return f"<groupfilter function='member' level='{level}' member='{value}' {marks}/>"


def _set(name: str, builder: str, inner: str) -> str:
    return (
        f"<group caption='{name}' name='[{name}]' name-style='unqualified' "
        f"user:ui-builder='{builder}'>{inner}</group>"
    )


def _calculated(name: str, caption: str, calculation: str) -> str:
    return (
        f"<column caption='{caption}' datatype='boolean' name='{name}' role='dimension' "
        f"type='nominal'>{calculation}</column>"
    )


def _for_whom(condition: str, members: str) -> str:
    return f"<groupfilter expression='{condition}' function='filter'>{members}</groupfilter>"


_ROME, _OSLO = _member("[city]", "&quot;Rome&quot;"), _member("[city]", "&quot;Oslo&quot;")
_TICKED = (
    f"<groupfilter function='union' {_CHOSEN}>"
    f"{_member('[none:city:nk]', '&quot;Rome&quot;')}{_member('[none:city:nk]', '%null%')}"
    "</groupfilter>"
)
_ALL_BUT = (
    "<groupfilter function='except' user:ui-domain='relevant' user:ui-enumeration='exclusive' "
    f"user:ui-marker='enumerate'>{_every('[none:city:nk]')}"
    f"{_member('[none:city:nk]', '&quot;Rome&quot;')}</groupfilter>"
)
_LARGEST = (
    "<groupfilter count='5' end='top' function='end' units='records' user:ui-marker='end' "
    "user:ui-top-by-field='true'><groupfilter direction='DESC' expression='SUM([net])' "
    f"function='order' user:ui-marker='order'>{_every('[none:city:nk]', _ALL)}"
    "</groupfilter></groupfilter>"
)
_WHERE = (
    "<groupfilter expression='[net] &gt; 9' function='filter' user:ui-filter-by-field='true' "
    f"user:ui-marker='filter-by'>{_every('[none:city:nk]', _ALL)}</groupfilter>"
)
_ANN = r"ISCURRENTUSER(&apos;air\ann&apos;)"
_BY_USER = (
    f"<groupfilter function='intersection'>{_every('[city]')}<groupfilter function='union'>"
    f"{_for_whom('false', _every('[city]'))}"
    f"{_for_whom(_ANN, _ROME)}"
    f"{_for_whom('ISMEMBEROF(&apos;Sales&apos;)', _OSLO)}</groupfilter></groupfilter>"
)
_BINS = (
    "<calculation class='categorical-bin' column='[city]' default='&quot;Other&quot;' "
    "new-bin='true'><bin default-name='false' value='&quot;South&quot;'>"
    "<value>&quot;Rome&quot;</value></bin></calculation>"
)
_COMMENTED = (
    "<calculation class='tableau' formula='// USERNAME() of the [id]&#13;&#10;IF "
    "ISMEMBEROF(&apos;All&apos;) THEN 1&#13;&#10;ELSEIF CONTAINS([city], &apos;;&apos; + "
    "USERNAME() + &apos;;&apos;) THEN 1 ELSE 0 END' />"
)
_IN_CITY = 'the filter on "city"'

ROW_FILTERS: dict[str, RowFilter] = {
    "members": RowFilter(_filter("[none:city:nk]", _TICKED), ("city",), (_IN_CITY,)),
    "one member, in a context": RowFilter(
        _filter(
            "[federated.1].[none:city:nk]",
            _member("[none:city:nk]", "&quot;Rome&quot;", _CHOSEN),
            " context='true' filter-group='7'",
        ),
        ("city",),
        (_IN_CITY,),
    ),
    "all but": RowFilter(_filter("[none:city:nk]", _ALL_BUT), ("city",), (_IN_CITY,)),
    "the largest": RowFilter(_filter("[none:city:nk]", _LARGEST), ("city", "net"), (_IN_CITY,)),
    "a condition": RowFilter(_filter("[none:city:nk]", _WHERE), ("city", "net"), (_IN_CITY,)),
    "a range": RowFilter(
        "<filter class='quantitative' column='[none:net:qk]' included-values='in-range'>"
        "<min>1</min><max>9.5</max></filter>",
        ("net",),
        ('the filter on "net"',),
    ),
    "in a data source with the name of a column": RowFilter(
        "<filter class='quantitative' column='[id].[none:net:qk]' included-values='non-null' />",
        ("net",),
        ('the filter on "net"',),
    ),
    "last days": RowFilter(
        "<filter class='relative-date' column='[none:day:qk]' first-period='-29' "
        "include-future='false' include-null='false' last-period='0' period-type-v2='day' />",
        ("day",),
        ('the filter on "day"',),
    ),
    "a part of a date": RowFilter(
        _filter("[yr:day:ok]", _member("[yr:day:ok]", "2025", _CHOSEN)),
        ("day",),
        ('the filter on "day"',),
    ),
    "a numbered instance": RowFilter(
        _filter("[none:city:nk:3]", _member("[none:city:nk:3]", "&quot;Rome&quot;", _CHOSEN)),
        ("city",),
        (_IN_CITY,),
    ),
    "a set": RowFilter(
        _set("Our cities", "filter-group", _TICKED)
        + _filter("[io:Our cities:nk]", _member("[io:Our cities:nk]", "true", _CHOSEN)),
        ("city",),
        ('the filter on "Our cities"',),
    ),
    "a group of values": RowFilter(
        _calculated("[city (group)]", "Parts", _BINS)
        + _filter("[none:city (group):nk]", _member("[none:city (group):nk]", "&quot;South&quot;")),
        ("city",),
        ('the filter on "Parts"',),
    ),
    "a user function": RowFilter(
        _calculated("[Calculation_9]", "Access", _COMMENTED)
        + _filter("[none:Calculation_9:ok]", _member("[none:Calculation_9:ok]", "1", _CHOSEN)),
        ("city",),
        ('"Access", which uses ISMEMBEROF()', 'the filter on "Access"'),
    ),
    "a user filter": RowFilter(
        _set("Cities of users", "identity-set", _BY_USER)
        + _filter("[Cities of users]", _every("[city]", _ALL)),
        ("city",),
        ('the filter on "Cities of users"', 'the user filter "Cities of users"'),
    ),
    "a set by group of users": RowFilter(
        _set("Of sales", "filter-group", _for_whom("ISMEMBEROF(&apos;Sales&apos;)", _ROME)),
        ("city",),
        ('"Of sales", which uses ISMEMBEROF()',),
    ),
    "a field of one user": RowFilter(
        _calculated(
            "[Calculation_8]",
            "Of Ann",
            f"<calculation class='tableau' formula='{_ANN} OR [city] = &apos;Rome&apos;' />",
        ),
        ("city",),
        ('"Of Ann", which uses ISCURRENTUSER()',),
    ),
}


@dataclass(frozen=True)
class Filtered(Shape):
    """A data source with a row filter."""

    has: RowFilter


def filtered(has: RowFilter) -> Filtered:
    """Add a row filter to a data source of one table."""
    shape = SHAPES["migrated"]
    defined, mark, filters = has.xml.partition("<filter")
    tds = shape.tds.replace("<drill-paths>", f"{defined}<drill-paths>", 1)
    assert f"xmlns:user='{USER}'" in tds
    tds = tds.replace("<object-graph>", f"{mark}{filters}<object-graph>", 1)
    return Filtered(tds, shape.tables, has)

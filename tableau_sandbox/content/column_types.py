from dataclasses import dataclass


@dataclass(frozen=True)
class LocalType:
    """How a `.tds` describes a type: its name, the code of the remote type, its aggregation."""

    name: str
    remote_type: str
    aggregation: str


_STRING = LocalType("string", "129", "Count")
_BY_HYPER_TYPE = {
    "BOOL": LocalType("boolean", "11", "Count"),
    "SMALL_INT": LocalType("integer", "2", "Sum"),
    "INT": LocalType("integer", "3", "Sum"),
    "BIG_INT": LocalType("integer", "20", "Sum"),
    "OID": LocalType("integer", "20", "Sum"),
    "NUMERIC": LocalType("real", "131", "Sum"),
    "FLOAT": LocalType("real", "4", "Sum"),
    "DOUBLE": LocalType("real", "5", "Sum"),
    "DATE": LocalType("date", "133", "Year"),
    "TIME": LocalType("datetime", "134", "Year"),
    "TIMESTAMP": LocalType("datetime", "135", "Year"),
    "TIMESTAMP_TZ": LocalType("datetime", "135", "Year"),
    "BYTES": LocalType("string", "128", "Count"),
    "TABLEAU.TABGEOGRAPHY": LocalType("spatial", "WKB", "Collect"),
}


def local_type(hyper_type: str) -> LocalType:
    """Return the type of a column with this Hyper type, such as "NUMERIC(18, 2)"."""
    return _BY_HYPER_TYPE.get(hyper_type.partition("(")[0], _STRING)

"""One spelling for each Hyper type: "BIGINT", "NUMERIC(10,2)", 'TEXT COLLATE "en_US_CI"'."""

import re

from tableauhyperapi import SqlType, TypeTag

_NAMES = {
    TypeTag.BOOL: "BOOLEAN",
    TypeTag.SMALL_INT: "SMALLINT",
    TypeTag.INT: "INTEGER",
    TypeTag.BIG_INT: "BIGINT",
    TypeTag.FLOAT: "REAL",
    TypeTag.DOUBLE: "DOUBLE PRECISION",
    TypeTag.TEXT: "TEXT",
    TypeTag.BYTES: "BYTES",
    TypeTag.DATE: "DATE",
    TypeTag.TIME: "TIME",
    TypeTag.TIMESTAMP: "TIMESTAMP",
    TypeTag.TIMESTAMP_TZ: "TIMESTAMPTZ",
    TypeTag.INTERVAL: "INTERVAL",
    TypeTag.JSON: "JSON",
    TypeTag.OID: "OID",
    TypeTag.TABGEOGRAPHY: "GEOGRAPHY",
}
_SPELLING = re.compile(
    rf"{'|'.join(_NAMES.values())}|NUMERIC\(\d+,\d+\)|UNSUPPORTED\(\d+\)"
    r'|(TEXT|(VARCHAR|CHAR)\(\d+\))( COLLATE ".+")?'
)


def sql_type(type_: SqlType, collation: str | None = None) -> str:
    """Return a type as SQL; "UNSUPPORTED(number)" if the Hyper API does not know it."""
    collated = f' COLLATE "{collation}"' if collation else ""
    return f"{_named(type_)}{collated}"


def type_family(sql: str) -> str:
    """Return a type without precision, length and collation: "NUMERIC" for "NUMERIC(10,2)".

    Raises:
        ValueError: it is not a type, or is spelled differently.
    """
    if not _SPELLING.fullmatch(sql):
        known = ", ".join(_NAMES.values())
        raise ValueError(
            f"{sql!r} is not a Hyper type as spelled here: {known}, NUMERIC(10,2), "
            'VARCHAR(9), CHAR(9), TEXT COLLATE "en_US_CI"'
        )
    return re.split(r"\(| COLLATE ", sql)[0]


def is_collated(sql: str) -> bool:
    """Whether texts of this type are compared by the rules of a language."""
    return " COLLATE " in sql


def _named(type_: SqlType) -> str:
    match type_.tag:
        case TypeTag.NUMERIC:
            return f"NUMERIC({type_.precision},{type_.scale})"
        case TypeTag.VARCHAR | TypeTag.CHAR as tag:
            return f"{tag.name}({type_.max_length})"
        case TypeTag.UNSUPPORTED:
            return f"UNSUPPORTED({type_.internal_oid})"
        case tag:
            return _NAMES[tag]

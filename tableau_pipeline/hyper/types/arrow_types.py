"""Map Arrow types to Hyper types, exactly or not at all."""

import pyarrow as pa

_SQL = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "SMALLINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    # Hyper has no unsigned integers, so each of them needs the next wider type.
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INTEGER",
    pa.uint32(): "BIGINT",
    pa.uint64(): "NUMERIC(20,0)",
    pa.float64(): "DOUBLE PRECISION",
    pa.string(): "TEXT",
    pa.binary(): "BYTES",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
}


class UnsupportedArrowTypeError(Exception):
    """Hyper has no type for an Arrow type."""


def plain(field: pa.Field) -> pa.Field:
    """Return the column in a type that hyperd reads and that holds every value of it.

    Nanoseconds become microseconds, which fails for values that are not whole microseconds.

    Raises:
        UnsupportedArrowTypeError: names the column and its type.
    """
    type_ = _plain(field.type)
    if type_ not in _SQL and not pa.types.is_decimal128(type_):
        raise UnsupportedArrowTypeError(
            f'column "{field.name}": Hyper cannot hold the Arrow type {field.type}; cast it, or '
            "leave the column out"
        )
    return field.with_type(type_)


def arrow_sql_type(type_: pa.DataType) -> str:
    """Return the SQL type of a plain column."""
    if pa.types.is_decimal128(type_):
        return f"NUMERIC({type_.precision},{type_.scale})"
    return _SQL[type_]


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return pa.binary()
    # Hyper stores 32-bit floats only in version 4 of its format; 64 bits hold the same values.
    if pa.types.is_floating(type_):
        return pa.float64()
    if pa.types.is_date(type_):
        return pa.date32()
    if pa.types.is_time(type_):
        return pa.time64("us")
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    # A column of nothing but NULLs fits into any type.
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return type_

"""The row hash: a 64-bit number that tells two rows apart, computed by Spark."""

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

# A sum of numbers of so many bits holds 2^41 rows.
_BITS = 22
_MASK = (1 << _BITS) - 1
_NESTED = (ArrayType, MapType, StructType, VariantType)
# The defaults leave out nulls and all below milliseconds.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def row_hash(schema: StructType) -> Column:
    """The hash of a row of this schema.

    Spark's hash functions skip NULLs, so that (1, NULL) and (NULL, 1) would be one: which values
    are NULL is hashed along. They lose the bounds of arrays and refuse maps and variants: of
    those, the JSON text is hashed.
    """
    nulls = [column(field.name).isNull() for field in schema.fields]
    return F.xxhash64(*[_hashable(field) for field in schema.fields], *nulls)


def hash_parts(hashes: Column) -> dict[str, Column]:
    """The bits of hashes in parts by name, the sums of which make the sum of the hashes.

    A sum of bigints overflows, and one of decimals would make the write take a tenth longer.
    """
    return {
        "high_bits": F.shiftright(hashes, 2 * _BITS),
        "middle_bits": F.shiftright(hashes, _BITS).bitwiseAND(F.lit(_MASK)),
        "low_bits": hashes.bitwiseAND(F.lit(_MASK)),
    }


def sum_of_hashes(sums: Mapping[str, int | None]) -> int:
    """The sum of all hashes by the sums of their `hash_parts`; those over no rows are NULL."""
    high, middle, low = (sums[name] or 0 for name in ("high_bits", "middle_bits", "low_bits"))
    return (high << 2 * _BITS) + (middle << _BITS) + low


def json_values(schema: StructType) -> dict[str, Column]:
    """The nested columns by name, as JSON text that tells any two values apart."""
    nested = (field.name for field in schema.fields if isinstance(field.dataType, _NESTED))
    return {name: _json(name) for name in nested}


def column(name: str) -> Column:
    """A column by its name, which may hold dots and backticks."""
    return F.col(f"`{name.replace('`', '``')}`")


def _hashable(field: StructField) -> Column:
    value = column(field.name)
    if isinstance(field.dataType, _NESTED):
        return _json(field.name)
    if _is_collated(field.dataType):
        # Texts that a collation takes for equal are different rows all the same.
        return value.cast(StringType())
    return value


def _json(name: str) -> Column:
    return F.to_json(column(name), _JSON)


def _is_collated(type_: DataType) -> bool:
    return isinstance(type_, StringType) and type_ != StringType()

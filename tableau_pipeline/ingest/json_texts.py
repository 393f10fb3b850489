"""Convert nested values to the JSON text that Spark's `to_json` writes."""

import base64
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)}
_ESCAPES |= {
    ord(sign): f"\\{letter}" for sign, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def json_texts(values: pa.Array) -> pa.Array:
    """Return the JSON text of each value; NULL stays NULL."""
    texts = (None if value is None else _json(value, values.type) for value in values.to_pylist())
    return pa.array(texts, pa.string())


def _json(value: Any, type_: pa.DataType) -> str:
    match value:
        case None:
            return "null"
        case str():
            return _text(value)
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case bool():
            return str(value).lower()
        case float():
            number = _number(value, type_)
            return number if math.isfinite(value) else f'"{number}"'
        case datetime():
            # Pad the year here, because `strftime` leaves out leading zeros on some platforms.
            zone = "Z" if value.tzinfo else ""
            return f'"{value.year:04}-{value:%m-%dT%H:%M:%S.%f}{zone}"'
        case date():
            return f'"{value.isoformat()}"'
        case Decimal() | int():
            return str(value)
    return "".join(_parts(value, type_))


def _parts(value: Any, type_: pa.DataType) -> Iterator[str]:
    if isinstance(type_, pa.StructType):
        items = (f"{_text(field.name)}:{_json(value[field.name], field.type)}" for field in type_)
        yield f"{{{','.join(items)}}}"
    elif isinstance(type_, pa.MapType):
        pairs = (
            f"{_text(_key(key, type_.key_type))}:{_json(item, type_.item_type)}"
            for key, item in value
        )
        yield f"{{{','.join(pairs)}}}"
    elif isinstance(type_, pa.ListType):
        yield f"[{','.join(_json(item, type_.value_type) for item in value)}]"
    else:
        raise TypeError(f"{type_} is not expected here")


def _key(key: Any, type_: pa.DataType) -> str:
    """Return the text of a key; for dates and times, Spark writes its internal numbers."""
    match key:
        case str():
            return key
        case bool():
            return str(key).lower()
        case float():
            return _number(key, type_)
        case datetime():
            return str((key.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1))
        case date():
            return str((key - _EPOCH.date()).days)
    return str(key)


def _text(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _number(value: float, type_: pa.DataType) -> str:
    """Return a float as Java writes it, with the fewest digits that identify the value."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    short = np.float32(value) if pa.types.is_float32(type_) else np.float64(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(short, unique=True, trim="0")
    mantissa, _, exponent = np.format_float_scientific(short, unique=True, trim="0").partition("e")
    return f"{mantissa}E{int(exponent)}"

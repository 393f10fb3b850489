"""The functions of formulas that the sandbox computes, as the service lists them."""

from typing import Any

_ORDERED = ("BOOL", "INT", "REAL", "STR", "DATE", "DATETIME")
_NUMBERS = ("INT", "REAL")


def _function(name: str, *overloads: tuple[tuple[str, ...], str]) -> dict[str, Any]:
    return {
        "name": name,
        "overloads": [
            {"arg_types": list(arguments), "return_type": result} for arguments, result in overloads
        ],
    }


FUNCTIONS = [
    _function("COUNT", *(((kind,), "INT") for kind in (*_ORDERED, "TABLE"))),
    _function("COUNTD", *(((kind,), "INT") for kind in _ORDERED)),
    _function("IIF", *((("BOOL", kind, kind), kind) for kind in _ORDERED)),
    _function("ISNULL", *(((kind,), "BOOL") for kind in _ORDERED)),
    _function("MAX", *(((kind,), kind) for kind in _ORDERED)),
    _function("MIN", *(((kind,), kind) for kind in _ORDERED)),
    _function("SUM", *(((kind,), kind) for kind in _NUMBERS)),
]

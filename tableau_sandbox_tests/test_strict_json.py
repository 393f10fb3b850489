"""JSON that means one thing is read exactly, and all other is refused."""

import pytest

from tableau_sandbox.strict_json import JsonError, read_json


def test_values():
    """Prevents: a whole number that loses digits, or a mark of Windows that ends a request."""
    body = '\ufeff{"a": [9007199254740993, 0.1, true, null, "é𝄞"]}'.encode()
    assert read_json(body) == {"a": [9007199254740993, 0.1, True, None, "é𝄞"]}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff", '{"a": 1}'.encode("utf-16"), b"1 2"),
        *(b'{"a": 1, "a": 1}', b'[{"a": {}, "a": {}}]'),
        *(b"[NaN]", b"[-Infinity]", b"[1e999]", b"[-1e999]"),
        *(b"1e99999999999999999999", b"1" * 5000, b"0." + b"1" * 5000),
        *(rb'"\u0000"', rb'["\ud800"]', rb'{"\udfff": 1}', rb'[{"a": ["\u0000"]}]'),
        *(b"[" * 251 + b"]" * 251, b"[" * 100_000, b'{"a":' * 100_000),
    ],
    ids=lambda body: repr(body[:20]),
)
def test_refusals(body: bytes):
    """Prevents: a request that is read in one of two ways, or a text that ends a statement."""
    with pytest.raises(JsonError):
        read_json(body)

"""Requests in JSON, as the same trees of elements that requests in XML are."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree.ElementTree import Element

from tableau_sandbox.errors import malformed
from tableau_sandbox.rest.answers import NOT_IN_XML

# The deepest request of the API has five levels.
_DEEPEST = 30


def parse_json(body: bytes, number: Callable[[str], Any] = float) -> Any:
    """Parse a JSON text strictly.

    Args:
        body: the text.
        number: returns the value of a number; it gets the number as it is written.

    Raises:
        RestError: 400000, it is not JSON, repeats a key, or is nested too deeply.
    """
    try:
        return json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_object,
            parse_int=number,
            parse_float=number,
            parse_constant=_no_number,
        )
    except RecursionError as error:
        raise malformed("The JSON of the request is nested too deeply.") from error
    except ValueError as error:
        raise malformed(f"The request is not JSON: {error}") from error


def request_tree(body: bytes) -> Element:
    """Return the tree of a request in JSON.

    In the mapping of Tableau's REST API reference, objects are elements, lists are repeated
    elements, and all other values are attributes. Null is the lack of a value.

    Raises:
        RestError: 400000, the body is not such a request.
    """
    root = Element("tsRequest")
    _fill(root, parse_json(body, str), depth=0)
    return root


def _fill(element: Element, value: object, *, depth: int) -> None:
    if not isinstance(value, dict):
        raise malformed(f"The JSON of '{element.tag}' is no object.")
    if depth > _DEEPEST:
        raise malformed("The JSON of the request is nested too deeply.")
    for name, part in value.items():
        if isinstance(part, dict | list):
            for item in part if isinstance(part, list) else [part]:
                element.append(_child(name, item, depth=depth + 1))
        elif part is not None:
            element.set(name, _text(part))


def _child(name: str, value: object, *, depth: int) -> Element:
    child = Element(name)
    if isinstance(value, str | bool):
        child.text = _text(value)
    else:
        _fill(child, value, depth=depth)
    return child


def _text(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise malformed(f"A key is repeated among {', '.join(key for key, _ in pairs)!a}.")
    for text in _texts(fields):
        # What no request in XML can contain, no handler has to expect.
        if NOT_IN_XML.search(text):
            raise malformed(f"{text[:100]!a} contains a character that XML does not allow.")
    return fields


def _texts(fields: dict[str, Any]) -> Iterator[str]:
    for key, value in fields.items():
        yield key
        yield from (text for text in _listed(value) if isinstance(text, str))


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _no_number(text: str) -> None:
    raise malformed(f"The request is not JSON: {text} is no number.")

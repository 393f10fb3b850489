"""Checks answers against the table of what they may hold."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import requests

from tableau_sandbox_tests.wire.answer_table import (
    ANSWERS,
    ELEMENTS,
    FLAGS,
    MAY_BE_EMPTY,
    NUMBERS,
    TIMES,
)

NAMESPACE = "{http://tableau.com/api}"
PATTERNS = {
    **dict.fromkeys(TIMES.split(), r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    **dict.fromkeys(FLAGS.split(), "true|false"),
    **dict.fromkeys(NUMBERS.split(), r"\d+"),
    **dict.fromkeys(MAY_BE_EMPTY.split(), "(?s:.*)"),
}


@dataclass(frozen=True)
class Part:
    """An attribute or a child: its name, its kind if it is a child, and whether it may lack."""

    name: str
    kind: str
    may_lack: bool


def check_answer(response: requests.Response, *_: object, **__: object) -> None:
    """A hook of the client library: the answer must be one of those in the table."""
    path = urlsplit(response.url).path
    called = re.fullmatch(r"/+api/\d+\.\d+/(.*)", path)
    if called is None:
        return
    where = f"{response.request.method} {called.group(1)}: {response.status_code}"
    if response.status_code < 400:
        kinds = kinds_of(response, called.group(1))
    elif response.headers["Content-Type"].startswith("text/html"):
        assert response.status_code in (503, 504), where
        return
    else:
        kinds = ["error"]
    if kinds == ["file"]:
        assert re.search(r'name="tableau_datasource"; filename="[^"]+"', disposition(response))
        return
    whole = "fields=" not in response.url
    if not kinds:
        assert response.content == b"", where
    elif response.headers["Content-Type"] == "application/json":
        check_json(response.json(), kinds, where=where, whole=whole)
    else:
        check_xml(response.content, kinds, where=where, whole=whole)


def disposition(response: requests.Response) -> str:
    return response.headers["Content-Disposition"]


def kinds_of(response: requests.Response, path: str) -> list[str]:
    rows = [line.split() for line in ANSWERS.strip().splitlines()]
    for method, pattern, status, *kinds in rows:
        expected = pattern.replace("{}", "[^/]+")
        if (method, status) != (response.request.method, str(response.status_code)):
            continue
        if re.fullmatch(expected, path, re.IGNORECASE):
            return kinds
    raise AssertionError(f"{response.request.method} {path}: {response.status_code} is not listed")


def parts_of(kind: str) -> tuple[list[Part], list[Part]]:
    attributes, _, children = ELEMENTS[kind].partition("|")
    return [part(word) for word in attributes.split()], [part(word) for word in children.split()]


def part(word: str) -> Part:
    name, _, kind = word.rstrip("?*").partition("=")
    return Part(name, kind or name, word.endswith(("?", "*")))


def check_xml(content: bytes, kinds: list[str], *, where: str, whole: bool = True) -> None:
    assert content.startswith(b'<?xml version="1.0" encoding="UTF-8"?><tsResponse xmlns='), where
    root = ElementTree.fromstring(content)
    assert [plain(child) for child in root] == kinds, where
    for child, kind in zip(root, kinds, strict=True):
        check_element(child, kind, where=f"{where} {kind}", whole=whole)


def check_element(node: ElementTree.Element, kind: str, *, where: str, whole: bool) -> None:
    if kind == "job" and not node.attrib:
        # One of the answers to a repeated request.
        return
    attributes, children = parts_of(kind)
    check_values(node.attrib, attributes, where=where, whole=whole)
    order = [child.name for child in children]
    places = [order.index(plain(child)) for child in node if plain(child) in order]
    assert len(places) == len(node), f"{where} holds {[plain(child) for child in node]}"
    assert places == sorted(places), f"{where} has its children in another order"
    for child in children:
        if whole and not child.may_lack:
            assert places.count(order.index(child.name)) == 1, f"{where} lacks {child.name}"
    for found in node:
        kind_of_child = children[order.index(plain(found))].kind
        check_element(found, kind_of_child, where=f"{where}/{plain(found)}", whole=whole)


def check_values(found: dict[str, str], known: list[Part], *, where: str, whole: bool) -> None:
    names = {part.name for part in known}
    assert not found.keys() - names, f"{where} has {found.keys() - names}"
    needed = {part.name for part in known if not part.may_lack}
    assert not whole or not needed - found.keys(), f"{where} lacks {needed - found.keys()}"
    for name, value in found.items():
        assert re.fullmatch(PATTERNS.get(name, "(?s:.+)"), value), f"{where}@{name} is {value!r}"


def check_json(value: dict[str, Any], kinds: list[str], *, where: str, whole: bool) -> None:
    assert list(value) == kinds, where
    for kind in kinds:
        check_object(value[kind], kind, where=f"{where} {kind}", whole=whole)


def check_object(value: Any, kind: str, *, where: str, whole: bool) -> None:
    attributes, children = parts_of(kind)
    if kind == "text":
        assert isinstance(value, str), where
        return
    texts = {name: text for name, text in value.items() if isinstance(text, str)}
    kept = [Part(child.name, "", child.may_lack) for child in children if child.kind == "text"]
    if kind == "productVersion":
        # The text of an element with attributes.
        texts.pop("value")
    check_values(texts, [*attributes, *kept], where=where, whole=whole)
    kinds = {child.name: child.kind for child in children}
    for name, part_value in value.items():
        if name not in texts and name != "value":
            assert name in kinds, f"{where} has {name}"
            for item in items(part_value):
                check_object(item, kinds[name], where=f"{where}/{name}", whole=whole)


def items(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else [value]


def plain(node: ElementTree.Element) -> str:
    assert node.tag.startswith(NAMESPACE), node.tag
    return node.tag.removeprefix(NAMESPACE)

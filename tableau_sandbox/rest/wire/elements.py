import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

NAMESPACE = "http://tableau.com/api"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_SCHEMAS = "https://help.tableau.com/samples/en-us/rest_api/"
NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Element:
    """A piece of an answer, before it becomes XML or JSON.

    Attributes:
        name: the name of the XML element, or of the JSON key.
        attributes: attributes without a value are left out.
        children: in the order in which they are written.
        text: the text, for an element without attributes and children.
        is_list: whether the children are items of one list.
        repeated: whether it may be one of several children with its name.
    """

    name: str
    attributes: Mapping[str, str | int | bool | None] = field(default_factory=dict)
    children: tuple["Element", ...] = ()
    text: str | None = None
    is_list: bool = False
    repeated: bool = False

    def written_attributes(self) -> dict[str, str]:
        """Return the attributes as the API writes them."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.attributes.items()
            if value is not None
        }


def listing(name: str, items: Iterable[Element]) -> Element:
    """Return an element with a list."""
    return Element(name, children=tuple(items), is_list=True)


def as_xml(elements: Iterable[Element], *, rest_version: str) -> bytes:
    """Write the elements as an XML document of the API."""
    schema_file = f"ts-api_{rest_version.replace('.', '_')}.xsd"
    root = ElementTree.Element(
        "tsResponse",
        {
            "xmlns": NAMESPACE,
            "xmlns:xsi": _XSI,
            "xsi:schemaLocation": f"{NAMESPACE} {_SCHEMAS}{schema_file}",
        },
    )
    for element in elements:
        _append(root, element)
    # Clients expect the declaration at the very start, with double quotes.
    return b'<?xml version="1.0" encoding="UTF-8"?>' + ElementTree.tostring(root, encoding="utf-8")


def as_json(elements: Iterable[Element]) -> bytes:
    """Write the elements as a JSON document of the API."""
    return json.dumps({element.name: _json(element) for element in elements}).encode()


def _append(parent: ElementTree.Element, element: Element) -> None:
    attributes = {
        name: NOT_IN_XML.sub("\ufffd", value)
        for name, value in element.written_attributes().items()
    }
    node = ElementTree.SubElement(parent, element.name, attributes)
    if element.text is not None:
        node.text = NOT_IN_XML.sub("\ufffd", element.text)
    for child in element.children:
        _append(node, child)


def _json(element: Element) -> object:
    if element.text is not None and not element.attributes and not element.children:
        return element.text
    if element.is_list:
        items = [_json(child) for child in element.children]
        return {element.children[0].name: items} if items else {}
    children: dict[str, object] = {
        child.name: _json(child) for child in element.children if not child.repeated
    }
    for name in {child.name for child in element.children if child.repeated}:
        children[name] = [_json(child) for child in element.children if child.name == name]
    value = {} if element.text is None else {"value": element.text}
    return {**value, **element.written_attributes(), **children}

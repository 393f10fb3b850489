"""The query parameter `fields`: which values of each item a list contains."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from tableau_sandbox.errors import refusal
from tableau_sandbox.rest.wire.elements import Element

OWNER = ("owner.id", "owner.name", "owner.fullName", "owner.siteRole")
# By default, the sandbox answers with all that it has.
_EVERYTHING = ("_all_", "_default_")


def selection(
    query: Mapping[str, str], *, item: str, known: Collection[str]
) -> Callable[[Element], Element]:
    """Return a function that leaves in the element of an item what the query requests.

    Args:
        query: the query parameters.
        item: the name of the element, by which the names of its own fields may begin.
        known: the names of all fields; those of a child begin with its name.

    Raises:
        RestError: 400065, the query requests an unknown field.
    """
    names = {name.removeprefix(f"{item}.") for name in query.get("fields", "").split(",") if name}
    unknown = names - {*known, *_EVERYTHING}
    if unknown:
        raise refusal("400065", f"The fields {sorted(unknown)!a:.500} are not recognized.")
    if not names or names.intersection(_EVERYTHING):
        return lambda element: element
    return lambda element: _narrowed(element, names)


def _narrowed(element: Element, names: Collection[str]) -> Element:
    children = []
    for child in element.children:
        if child.name in names:
            children.append(child)
        elif kept := _attributes(child, names, prefix=f"{child.name}."):
            children.append(replace(child, attributes=kept))
    return replace(
        element, attributes=_attributes(element, names, prefix=""), children=tuple(children)
    )


def _attributes(
    element: Element, names: Collection[str], *, prefix: str
) -> dict[str, str | int | bool | None]:
    return {name: value for name, value in element.attributes.items() if f"{prefix}{name}" in names}

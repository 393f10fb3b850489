"""The element of the API for permission rules."""

from collections.abc import Collection, Sequence
from itertools import groupby

from tableau_sandbox.access.decision import Rule
from tableau_sandbox.rest.wire.elements import Element, listing
from tableau_sandbox.store.records import Datasource, Project


def permissions_element(
    thing: Project | Datasource,
    rules: Sequence[Rule],
    *,
    groups: Collection[str],
    parent: str | None,
) -> Element:
    """Return the element of the rules of a project or a data source.

    Args:
        thing: the project or the data source.
        rules: its rules.
        groups: the LUIDs of all groups; other grantees are users.
        parent: the LUID of the project whose rules these are, if it locks those of `thing`.
    """
    name = "project" if isinstance(thing, Project) else "datasource"
    owner = Element("owner", {"id": thing.owner})
    item = Element(name, {"id": thing.luid, "name": thing.name}, (owner,))
    locking = Element("parent", {"type": "Project", "id": parent})
    by_grantee = sorted(rules, key=lambda rule: rule.grantee)
    return Element(
        "permissions",
        children=(
            *((locking,) if parent else ()),
            item,
            *(
                _grantee_element(luid, list(own), kind="group" if luid in groups else "user")
                for luid, own in groupby(by_grantee, key=lambda rule: rule.grantee)
            ),
        ),
    )


def _grantee_element(luid: str, rules: Sequence[Rule], *, kind: str) -> Element:
    capabilities = listing(
        "capabilities",
        (Element("capability", {"name": rule.capability, "mode": rule.mode}) for rule in rules),
    )
    return Element(
        "granteeCapabilities", children=(Element(kind, {"id": luid}), capabilities), repeated=True
    )

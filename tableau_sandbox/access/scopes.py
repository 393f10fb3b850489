"""Which calls a session of a connected app may make (Tableau's "Access Scopes for Connected Apps").

The scopes of a call are those of Tableau's list, and of the call's page in the REST API reference.
"""

from collections.abc import Sequence


def scopes_allow(granted: Sequence[str], needed: Sequence[str]) -> bool:
    """Whether one of the `granted` scopes is, or as a wildcard covers, one of the `needed` ones.

    A wildcard stands for all actions on one kind of resource: `tableau:datasources:*`. Tableau's
    list has no wildcard for everything.
    """
    return any(scope in granted or _wildcard(scope) in granted for scope in needed)


def _wildcard(scope: str) -> str:
    resource, _, _ = scope.rpartition(":")
    return f"{resource}:*"

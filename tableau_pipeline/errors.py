"""Faults that a person can mend: each names the thing and the remedy."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Check(StrEnum):
    """What is looked at before anything is sent."""

    GUARD = "guard"
    KEYS = "keys"
    SCHEMA = "schema"


_NOTHING: Mapping[Check, str] = MappingProxyType({})


class RefreshError(Exception):
    """The refresh could not be carried out; trying again may help."""


class RefusedError(RefreshError):
    """The refresh would be wrong or unsafe; it needs a decision, not another try.

    Attributes:
        failed: what each check that failed has found; none where the reason is another.
    """

    def __init__(self, message: str, failed: Mapping[Check, str] = _NOTHING) -> None:
        super().__init__(message)
        self.failed = failed


class BatchError(RefusedError, ValueError):
    """An action batch, or a condition in one, that no server would take."""

"""Errors that a person can resolve: each names the thing and the remedy."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Check(StrEnum):
    """The checks before anything is sent."""

    GUARD = "guard"
    KEYS = "keys"
    SCHEMA = "schema"


_NOTHING: Mapping[Check, str] = MappingProxyType({})


class RefreshError(Exception):
    """The refresh could not be carried out; another run may succeed."""


class DriftError(RefreshError):
    """Another user changed the data source during the refresh."""


class RefusedError(RefreshError):
    """The refresh would be wrong or unsafe; it needs a decision, not a retry.

    Attributes:
        failed: what each failed check found; empty if the reason is another one.
    """

    def __init__(self, message: str, failed: Mapping[Check, str] = _NOTHING) -> None:
        super().__init__(message)
        self.failed = failed


class DamagedSnapshotError(RefusedError):
    """A version of a model is stored, but cannot be read."""


class BatchError(RefusedError, ValueError):
    """No server would accept an action batch, or a condition in it."""

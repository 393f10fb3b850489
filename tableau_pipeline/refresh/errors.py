"""Faults that a person can mend: each names the thing and the remedy."""


class RefreshError(Exception):
    """The refresh could not be carried out; trying again may help."""


class RefusedError(RefreshError):
    """The refresh would be wrong or unsafe; it needs a decision, not another try."""


class BatchError(RefusedError, ValueError):
    """An action batch, or a condition in one, that no server would take."""

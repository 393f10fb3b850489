"""Errors that a person can resolve: each names the thing and the remedy."""

from tableau_pipeline.outcome import Code, Refusal, Status, in_words


class RefreshError(Exception):
    """The refresh could not be carried out; another run may succeed.

    Attributes:
        decision: what is recorded of a refresh that it has stopped.
    """

    decision = Status.FAILED


class UnreachableError(RefreshError):
    """The server cannot be reached, or its answer has not arrived."""


class UnknownOutcomeError(RefreshError):
    """A request may still take effect, or has: the next refresh finds out."""


class OvertakenError(RefreshError):
    """Another refresh has claimed the data source since; this one sends nothing more."""


class DriftError(RefreshError):
    """Another user changed the data source during the refresh."""


class BusyError(RefreshError):
    """Another job changes the data source now; the server has not taken ours."""


class NotListedError(RefreshError):
    """The server has something of this name, but its lists do not show it, or not yet."""


class UnreadableError(RefreshError):
    """The server sent the metadata of a data source in a form that cannot be read."""


class RefusedError(RefreshError):
    """The refresh would be wrong or unsafe; it needs a decision, not a retry.

    Attributes:
        refusals: the reasons, one or several.
        code: of reasons that are given as texts.
    """

    decision = Status.REFUSED
    code: Code = Code.OTHER

    def __init__(self, *reasons: Refusal | str, code: Code | None = None) -> None:
        code = code or self.code
        self.refusals = tuple(Refusal(e, code) if isinstance(e, str) else e for e in reasons)
        super().__init__(in_words(self.refusals))


class CredentialsError(RefusedError):
    """The server does not let this user sign in, which says nothing about the data."""

    decision = Status.FAILED
    code = Code.CREDENTIALS


class NoProjectError(RefusedError):
    """The site has no project at this path, or this user may not see it."""

    code = Code.NOT_ON_SITE


class NoUpdatesError(RefusedError):
    """The server lets nobody, or not this user, update the data source; it may be published.

    Attributes:
        lacks_right: this user may not.
    """

    code = Code.NO_UPDATES

    def __init__(self, reason: Refusal | str, *, lacks_right: bool) -> None:
        super().__init__(reason)
        self.lacks_right = lacks_right


class DamagedSnapshotError(RefusedError):
    """A version of a model is stored, but cannot be read."""

    code = Code.SNAPSHOT


class SettingError(RefusedError):
    """A setting of this host or deployment is not valid."""

    code = Code.SETTING


class FilesError(RefusedError):
    """Files, or what is said of them, cannot be read exactly."""

    code = Code.FILES


class LakeError(RefusedError):
    """A table of a lake cannot be read exactly."""

    code = Code.LAKE


class BudgetSpentError(RefreshError):
    """A session has sent as many requests as it may."""


class BatchError(RefusedError, ValueError):
    """No server would accept an action batch, or a condition in it."""

    code = Code.BATCH


# They come from a mistake in code, and from no host, file or server.
_MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)


def describe_error(error: Exception) -> str:
    """What an error says; of one that nobody has preview_of, also what it is."""
    if isinstance(error, RefreshError):
        return str(error)
    whose = ". This is a mistake in code: tableau-pipeline --debug shows where"
    return f"{type(error).__name__}: {error}{whose * isinstance(error, _MISTAKES)}"

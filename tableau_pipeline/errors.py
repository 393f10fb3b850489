"""The errors of a refresh. Each message names the cause and the remedy."""

from tableau_pipeline.outcome import Code, Refusal, Status, in_words


class RefreshError(Exception):
    """The refresh failed. Another run may succeed, except after a `RefusedError`.

    Attributes:
        decision: the status to record for a refresh that this error stops.
    """

    decision = Status.FAILED


class UnreachableError(RefreshError):
    """The server cannot be reached, or has not answered."""


class UnknownOutcomeError(RefreshError):
    """A request may have taken effect, or may take effect later; the next refresh finds out."""


class OvertakenError(RefreshError):
    """A later refresh has taken over the data source, so this refresh sends nothing more."""


class HeldError(RefreshError):
    """A person has put the data source on hold, so the refresh changed nothing.

    Attributes:
        reason: the start of the hold, the person who holds the data source, and that person's
            reason.
    """

    decision = Status.HELD

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class DriftError(RefreshError):
    """Another user changed the data source during the refresh."""


class NotAcceptedError(RefreshError):
    """The server did not accept a request and changed nothing; another run may succeed."""


class BusyError(NotAcceptedError):
    """Another job is changing the data source, so the server did not accept our request."""


class NotListedError(RefreshError):
    """The server has an object of this name, but does not list the object yet."""


class UnreadableError(RefreshError):
    """The server sent the metadata of a data source in a form that cannot be read."""


class RefusedError(RefreshError):
    """The refresh would be wrong or unsafe. A user must decide; a retry does not help.

    Attributes:
        refusals: one or more reasons.
        code: the code of each reason that the caller passes as text.
    """

    decision = Status.REFUSED
    code: Code = Code.OTHER

    def __init__(self, *reasons: Refusal | str, code: Code | None = None) -> None:
        code = code or self.code
        self.refusals = tuple(
            Refusal(reason, code) if isinstance(reason, str) else reason for reason in reasons
        )
        super().__init__(in_words(self.refusals))


class CredentialsError(RefusedError):
    """The server rejects the sign-in of this user; the cause is not in the data."""

    decision = Status.FAILED
    code = Code.CREDENTIALS


class NoProjectError(RefusedError):
    """The site has no project at this path, or this user may not see the project."""

    code = Code.NOT_ON_SITE


class NoUpdatesError(RefusedError):
    """The server rejects updates of the data source, but may accept a full publish.

    Attributes:
        lacks_right: whether the server rejects the updates because this user lacks the right.
    """

    code = Code.NO_UPDATES

    def __init__(self, reason: Refusal | str, *, lacks_right: bool) -> None:
        super().__init__(reason)
        self.lacks_right = lacks_right


class DamagedSnapshotError(RefusedError):
    """A stored version of a model cannot be read."""

    code = Code.SNAPSHOT


class SettingError(RefusedError):
    """A setting of this host or deployment is invalid."""

    code = Code.SETTING


class FilesError(RefusedError):
    """Files, or their metadata, cannot be read exactly."""

    code = Code.FILES


class LakeError(RefusedError):
    """A lake table cannot be read exactly."""

    code = Code.LAKE


class BudgetSpentError(RefreshError):
    """A session has used up its budget of requests."""


class BatchError(RefusedError, ValueError):
    """An action batch, or a condition in a batch, is invalid for every server."""

    code = Code.BATCH


# These errors are caused by mistakes in code, not by a host, file or server.
_MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)


def describe_error(error: Exception) -> str:
    """Return the text of an error; for an unexpected error, the text begins with its class."""
    if isinstance(error, RefreshError):
        return str(error)
    hint = ". This is a mistake in code: tableau-pipeline --debug shows where"
    return f"{type(error).__name__}: {error}{hint * isinstance(error, _MISTAKES)}"

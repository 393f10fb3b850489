"""The errors of a refresh. Their messages name the cause and the remedy."""

from tableau_pipeline.outcome import Code, Refusal, Status, in_words


class RefreshError(Exception):
    """The refresh failed; another run may succeed.

    Attributes:
        decision: the status to record for a refresh that this error stops.
    """

    decision = Status.FAILED


class UnreachableError(RefreshError):
    """The server cannot be reached, or its response has not arrived."""


class UnknownOutcomeError(RefreshError):
    """A request may have taken effect, or may do so later; the next refresh determines this."""


class OvertakenError(RefreshError):
    """Another refresh has since claimed the data source; this one sends nothing more."""


class HeldError(RefreshError):
    """A person holds the data source as it is, so the refresh did nothing.

    Attributes:
        reason: since when it is held, by whom, and why.
    """

    decision = Status.HELD

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class DriftError(RefreshError):
    """Another user changed the data source during the refresh."""


class NotAcceptedError(RefreshError):
    """The server has not accepted a request, and nothing happened; another run may succeed."""


class BusyError(NotAcceptedError):
    """Another job is changing the data source, so the server has not accepted ours."""


class NotListedError(RefreshError):
    """The server has an object of this name, but its lists do not show it, perhaps not yet."""


class UnreadableError(RefreshError):
    """The server sent the metadata of a data source in a form that cannot be read."""


class RefusedError(RefreshError):
    """The refresh would be wrong or unsafe; it needs a decision, not a retry.

    Attributes:
        refusals: the reasons, one or several.
        code: the code of reasons that are given as texts.
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
    """The server rejects the sign-in of this user; this is unrelated to the data."""

    decision = Status.FAILED
    code = Code.CREDENTIALS


class NoProjectError(RefusedError):
    """The site has no project at this path, or this user may not see it."""

    code = Code.NOT_ON_SITE


class NoUpdatesError(RefusedError):
    """The server rejects updates of the data source, but may accept a full publish.

    Attributes:
        lacks_right: whether the reason is that this user lacks the right.
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
    """An action batch, or a condition in it, is invalid for every server."""

    code = Code.BATCH


# These errors are caused by mistakes in code, not by a host, file or server.
_MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)


def describe_error(error: Exception) -> str:
    """Return one line for an error; unexpected errors are prefixed with their type."""
    if isinstance(error, RefreshError):
        return str(error)
    hint = ". This is a mistake in code: tableau-pipeline --debug shows where"
    return f"{type(error).__name__}: {error}{hint * isinstance(error, _MISTAKES)}"

"""How a check fails a history."""


class CheckFailed(BaseException):
    """A refresh, or the data source that it published, is not as it must be.

    The class is no `Exception`, so that the product cannot catch it.
    """


def require(holds: bool, message: str) -> None:
    """Fail the history with a message if a condition does not hold.

    Raises:
        CheckFailed: the condition does not hold.
    """
    if not holds:
        raise CheckFailed(message)

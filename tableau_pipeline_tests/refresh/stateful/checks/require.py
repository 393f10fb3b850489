"""How a check fails a history."""


class CheckFailed(BaseException):
    """A refresh, or what it published, is not as it must be.

    It is no `Exception`, so that the product cannot catch it.
    """


def require(holds: bool, message: str) -> None:
    """Fail the history with a message unless this holds.

    Raises:
        CheckFailed: it does not hold.
    """
    if not holds:
        raise CheckFailed(message)

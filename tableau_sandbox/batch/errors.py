from enum import StrEnum


class GrammarError(ValueError):
    """A batch cannot be parsed; the message states where and why."""


class Code(StrEnum):
    """The kinds of batch errors; numbers are codes that were observed on real servers."""

    NO_SUCH_TABLE = "410012"
    UNREADABLE_FILE = "unreadable file"
    SCHEMA_NEEDED = "schema needed"
    COLUMNS = "columns"
    TYPES = "types"
    REPEATED_KEY = "repeated key"
    ENGINE = "engine"


_SERVER_CLASS = "com.tableausoftware.server.status.reporting.TableauRuntimeException"


class BatchError(RuntimeError):
    """A batch cannot be applied; the data do not change.

    Attributes:
        code: the kind of error.
        message: the error in words.
        action: the position of the action that failed, from 0; None if a file cannot be opened.
    """

    def __init__(self, code: Code, message: str, action: int | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.action = action

    @property
    def note(self) -> str:
        """Format the error for the notes of a job, as real servers do where that is known."""
        if self.code.isdigit():
            return f"{_SERVER_CLASS}: {self.message} (errorCode={self.code})"
        where = "" if self.action is None else f"Action {self.action + 1}: "
        return f"{where}{self.message}"

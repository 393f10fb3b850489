from enum import StrEnum


class GrammarError(ValueError):
    """A batch cannot be understood; the message says where and why."""


class Code(StrEnum):
    """The ways in which a batch fails; those seen on real servers have the number seen there."""

    NO_SUCH_TABLE = "410012"
    UNREADABLE_FILE = "unreadable file"
    SCHEMA_NEEDED = "schema needed"
    COLUMNS = "columns"
    TYPES = "types"
    REPEATED_KEY = "repeated key"
    ENGINE = "engine"


_SERVER_CLASS = "com.tableausoftware.server.status.reporting.TableauRuntimeException"


class BatchError(RuntimeError):
    """A batch cannot be applied; the data stay as they are.

    Attributes:
        code: the way in which it failed.
        message: what is wrong, in words.
        action: the position of the action that failed, from 0; None if a file cannot be opened.
    """

    def __init__(self, code: Code, message: str, action: int | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.action = action

    @property
    def note(self) -> str:
        """The failure as the notes of a job tell it: as real servers do, where that is known."""
        if self.code.isdigit():
            return f"{_SERVER_CLASS}: {self.message} (errorCode={self.code})"
        where = "" if self.action is None else f"Action {self.action + 1}: "
        return f"{where}{self.message}"

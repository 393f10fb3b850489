"""What Tableau's documents leave open, and pipelines notice: a sandbox can be told to do either."""

from enum import StrEnum


class RepeatedRequest(StrEnum):
    """What the second request with a RequestID is answered; it is never carried out."""

    FIRST_JOB = "first-job"
    EMPTY_JOB = "empty-job"
    CONFLICT = "conflict"


class UpdatedAt(StrEnum):
    """Whether the `updatedAt` of a data source moves when its data are updated."""

    MOVES = "moves"
    STAYS = "stays"
    MOVES_LATE = "moves-late"


class JobOrder(StrEnum):
    """Which of the queued jobs comes next."""

    FIFO = "fifo"
    ANY = "any"

"""One sandbox for each way in which a server may behave, started when it is first needed."""

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tableau_pipeline.sandbox.open_questions import JobOrder, RepeatedRequest, Replace, UpdatedAt
from tableau_pipeline.sandbox.options import UserSeed
from tableau_pipeline.sandbox.testing import Sandbox, running_sandbox

WORKER = UserSeed(name="worker", password="worker-secret")


@dataclass(frozen=True)
class Setting:
    """What Tableau's documents leave open."""

    updated_at: UpdatedAt
    repeated_request: RepeatedRequest
    job_order: JobOrder
    replace: Replace


# Every two habits meet in one of them.
_LIKE_OVERWRITE = {(0, 2), (1, 0), (2, 1)}
SETTINGS = tuple(
    Setting(
        moves,
        repeated,
        list(JobOrder)[(i + j) % 2],
        Replace.LIKE_OVERWRITE if (i, j) in _LIKE_OVERWRITE else Replace.KEEPS_METADATA,
    )
    for i, moves in enumerate(UpdatedAt)
    for j, repeated in enumerate(RepeatedRequest)
)


class Sandboxes:
    """Those that run; all stop at the end of the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._running: dict[Setting, Sandbox] = {}

    def __enter__(self) -> "Sandboxes":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def of(self, setting: Setting) -> Sandbox:
        """The one with these habits."""
        if setting not in self._running:
            folder = self._folder / str(len(self._running))
            running = running_sandbox(folder, users=(WORKER,), **asdict(setting))
            self._running[setting] = self._stack.enter_context(running)
        return self._running[setting]

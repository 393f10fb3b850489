"""What others do on the server while a refresh is at work."""

from collections.abc import Callable
from typing import Any

from tableau_pipeline.sandbox.open_questions import Stamps, UpdatedAt

KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "same second": {"stamps": Stamps.SHARED},
    "updates leave no stamp": {"updated_at": UpdatedAt.STAYS},
}
# A call of the refresh, right after which somebody publishes.
MOMENTS = {"planned": "upload", "queued": "update", "ended": "mark_done"}


class Meddled:
    """A server on which somebody publishes at a moment of a sending, `times` times.

    Moments: "uploaded", "sent" (the job is queued, or runs), "ended" (it was seen to have ended).
    """

    def __init__(self, behind: Any, moment: str, happens: Callable[[], object], times: int) -> None:
        self._behind, self._moment, self._happens, self._left = behind, moment, happens, times

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._behind, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = found(*args, **kwargs)
            moment = {"upload": "uploaded", "update": "sent", "publish": "sent"}.get(name)
            if name == "job" and answer and answer.outcome:
                moment = "ended"
            if moment == self._moment and self._left:
                self._left -= 1
                self._happens()
            return answer

        return call

"""A journal that things happen to."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from tableau_pipeline.core.checkpoint import Intent, State
from tableau_pipeline_tests.refresh.journals import RememberingJournal


class TroubledJournal(RememberingJournal):
    """Everything in it was done `age` earlier than it says."""

    def __init__(self, path: Path, *, age: timedelta) -> None:
        super().__init__(path)
        self._age = age
        self._hidden = path.with_suffix(".hidden")

    def state(self) -> State | None:
        """None while something hides it."""
        return None if self._hidden.exists() else super().state()

    def intents(self) -> Sequence[Intent]:
        """Those since the last state, hidden or not."""
        return [_older(intent, self._age) for intent in super().intents()]

    def keep(self, state: State) -> None:
        """What comes later is not hidden."""
        super().keep(state)
        self._hidden.unlink(missing_ok=True)

    def hide(self) -> None:
        """Hide the state, as a materialization does that is reported by hand."""
        self._hidden.touch()

    def wipe(self) -> None:
        """Lose everything."""
        self.path.unlink(missing_ok=True)

    def text(self) -> str:
        """All that is in it."""
        return self.path.read_text("utf-8") if self.path.exists() else ""


def _older(intent: Intent, age: timedelta) -> Intent:
    resent_at = intent.resent_at and intent.resent_at - age
    return intent.model_copy(
        update={"recorded_at": intent.recorded_at - age, "resent_at": resent_at}
    )

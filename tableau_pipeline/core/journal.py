"""Where a refresh reads what earlier ones left, and records what it is about to do."""

from collections.abc import Sequence
from typing import Protocol

from tableau_pipeline.core.checkpoint import Intent, State


class Journal(Protocol):
    """Kept by Dagster's event log, or by a file of a script."""

    def state(self) -> State | None:
        """What the last successful refresh left, unless something hides it."""

    def why_no_state(self) -> str:
        """Why `state` is None, in words."""

    def intents(self) -> Sequence[Intent]:
        """The newest record of each intent since that state, in the order of their first."""

    def record(self, intent: Intent) -> None:
        """Keep an intent; it is safe once this returns."""

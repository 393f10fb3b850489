"""A journal as a script would keep it: a JSON file of states and intents."""

import json
from collections.abc import Sequence
from pathlib import Path

from tableau_pipeline.refresh.state import Intent, State


class FileJournal:
    """Implements `refresh.journal.Journal` on one file, which outlives the process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def state(self) -> State | None:
        """The last state kept."""
        states = [entry["state"] for entry in self._entries() if "state" in entry]
        return State.model_validate(states[-1]) if states else None

    def why_no_state(self) -> str:
        """There is one reason only."""
        return "the journal is empty"

    def intents(self) -> Sequence[Intent]:
        """The newest record of each intent since the last state."""
        newest: dict[str, Intent] = {}
        for entry in self._entries():
            if "state" in entry:
                newest.clear()
            else:
                intent = Intent.model_validate(entry["intent"])
                newest[intent.request_id] = intent
        return list(newest.values())

    def record(self, intent: Intent) -> None:
        """Append an intent."""
        self._append({"intent": intent.model_dump(mode="json")})

    def keep(self, state: State) -> None:
        """Append the state that a refresh left: what Dagster does with its materialization."""
        self._append({"state": state.model_dump(mode="json")})

    def all_intents(self) -> list[Intent]:
        """Every record of an intent, whatever came after it."""
        entries = [entry["intent"] for entry in self._entries() if "intent" in entry]
        return [Intent.model_validate(entry) for entry in entries]

    def _entries(self) -> list[dict]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]

    def _append(self, entry: dict) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

"""The journal of scripts, with a memory."""

from pathlib import Path

from tableau_pipeline.core.checkpoint import Intent
from tableau_pipeline.core.file_journal import FileJournal


class RememberingJournal(FileJournal):
    """Knows every record of an intent that was ever made, whatever came after it."""

    def record(self, intent: Intent) -> None:
        """Keep and remember it."""
        super().record(intent)
        with self._memory.open("a", encoding="utf-8") as file:
            file.write(intent.model_dump_json() + "\n")

    def all_intents(self) -> list[Intent]:
        """Every record."""
        if not self._memory.exists():
            return []
        with self._memory.open(encoding="utf-8") as file:
            return [Intent.model_validate_json(line) for line in file]

    @property
    def _memory(self) -> Path:
        return self.path.with_suffix(".memory")

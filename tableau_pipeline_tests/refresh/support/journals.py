"""The journal of scripts, with a memory."""

from pathlib import Path

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.journal import Intent, Record, read_history
from tableau_pipeline.scripting.file_journal import FileJournal


class RememberingJournal(FileJournal):
    """Knows every record of an intent that was ever made, whatever came after it."""

    def append(self, record: Record) -> None:
        """Keep and remember it."""
        super().append(record)
        if isinstance(record, Intent):
            with self._memory.open("a", encoding="utf-8") as file:
                file.write(record.model_dump_json() + "\n")

    def all_intents(self) -> list[Intent]:
        """Every record."""
        if not self._memory.exists():
            return []
        with self._memory.open(encoding="utf-8") as file:
            return [Intent.model_validate_json(line) for line in file]

    def sendings(self) -> list[Intent]:
        """All that was ever about to be sent, oldest first, each as the last record of it."""
        return list({each.request_id: each for each in self.all_intents()}.values())

    def checkpoint(self) -> Checkpoint | None:
        """The newest one."""
        return read_history(self.records()).checkpoint

    def intents(self) -> tuple[Intent, ...]:
        """Those since then."""
        return read_history(self.records()).intents

    @property
    def _memory(self) -> Path:
        return self.path.with_suffix(".memory")

from dataclasses import dataclass, field, replace

from tableau_pipeline.core.checkpoint import Checkpoint, Habits, Intent
from tableau_pipeline.core.server import RemoteDatasource


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of sending an update or a file.

    Attributes:
        checkpoint: the checkpoint that was reached; None if no update can build on it.
        intent: the recorded intent; None if nothing had to be sent.
        doubt: why somebody else may have changed the data source as well; None if nobody has.
        learnt: what the site has shown about its behaviour, provided that nobody else changed
            it.
    """

    checkpoint: Checkpoint | None
    remote: RemoteDatasource
    intent: Intent | None
    doubt: str | None = None
    learnt: Habits = field(default_factory=Habits)

    @property
    def job_id(self) -> str | None:
        """The id of the server's job, if it made one."""
        return self.intent.job_id if self.intent else None

    def without_doubt(self) -> "Sent":
        """Return this result without the doubt, once the contents have resolved it."""
        if self.checkpoint is None:
            return self
        checkpoint = self.checkpoint.model_copy(update={"habits": self.learnt})
        return replace(self, checkpoint=checkpoint, doubt=None)

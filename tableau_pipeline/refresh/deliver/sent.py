from dataclasses import dataclass, field, replace

from tableau_pipeline.core.checkpoint import Checkpoint, Habits, Intent
from tableau_pipeline.core.server import RemoteDatasource


@dataclass(frozen=True, slots=True)
class Sent:
    """What a sending left.

    Attributes:
        checkpoint: None if nothing can build on it.
        intent: how it was sent; None if nothing had to be.
        doubt: why somebody else may have changed the data source as well; None if nobody has.
        learnt: what the site has shown, provided that nobody else was there.
    """

    checkpoint: Checkpoint | None
    remote: RemoteDatasource
    intent: Intent | None
    doubt: str | None = None
    learnt: Habits = field(default_factory=Habits)

    @property
    def job_id(self) -> str | None:
        """Of the server's job, if one did it."""
        return self.intent.job_id if self.intent else None

    def without_doubt(self) -> "Sent":
        """The same, once the contents have proved that it was us alone."""
        if self.checkpoint is None:
            return self
        checkpoint = self.checkpoint.model_copy(update={"habits": self.learnt})
        return replace(self, checkpoint=checkpoint, doubt=None)

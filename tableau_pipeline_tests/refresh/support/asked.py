"""What a run asks for: a refresh, or only its plan, or only the file."""

from dataclasses import dataclass

from tableau_pipeline.core.hold import Hold
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.refresh import build, plan, refresh, rollback
from tableau_pipeline.refresh.report import Done
from tableau_pipeline.refresh.setup import Setup


@dataclass(frozen=True, slots=True)
class Asked(Options):
    """The options of a refresh, and whether it is only to be planned, or built.

    Attributes:
        rollback: the version to go back to; None to publish the models.
    """

    dry_run: bool = False
    build_only: bool = False
    rollback: int | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether it publishes recorded versions of the models, whatever they have by now."""
        return bool(self.metadata_only or self.rollback or self.saved)

    def carry_out(self, setup: Setup) -> Done:
        """Do it, as a run of Dagster does."""
        if self.rollback is not None:
            return rollback(setup, Hold(by="ann", version=self.rollback), dry_run=self.dry_run)
        if self.dry_run:
            return plan(setup, self)
        return build(setup, self) if self.build_only else refresh(setup, self)

"""The request of a run: a refresh, only the plan of a refresh, or only its file."""

from dataclasses import dataclass

from tableau_pipeline.core.hold import Hold
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.refresh import build, plan, refresh, rollback
from tableau_pipeline.refresh.report import Done
from tableau_pipeline.refresh.setup import Setup


@dataclass(frozen=True, slots=True)
class Asked(Options):
    """The options of a refresh, and whether the run only plans it, or only builds its file.

    Attributes:
        rollback: the version to go back to; None to publish the models.
    """

    dry_run: bool = False
    build_only: bool = False
    rollback: int | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether the run publishes recorded versions of the models instead of the newest."""
        return bool(self.metadata_only or self.rollback or self.saved)

    def carry_out(self, setup: Setup) -> Done:
        """Do what is asked, as a run of Dagster does."""
        if self.rollback is not None:
            return rollback(setup, Hold(by="ann", version=self.rollback), dry_run=self.dry_run)
        if self.dry_run:
            return plan(setup, self)
        return build(setup, self) if self.build_only else refresh(setup, self)

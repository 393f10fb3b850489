"""Write the file of `plan --out`: approvals of changed declarations, or plans of refreshes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import click
from rich.text import Text

from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.outcome import Accept, Status
from tableau_pipeline.refresh.approval import Approval
from tableau_pipeline.refresh.plan_file import PlanEntry, write_plan_file
from tableau_pipeline.refresh.preview import Preview
from tableau_pipeline.refresh.saved_plan import SavedPlan
from tableau_pipeline.scripting.environment import current_user

# A preview of one of these kinds plans no refresh.
_NOT_PLANNED = (Status.REFUSED, Status.FAILED, Status.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Saving:
    """The options of `plan --out`.

    Attributes:
        out: the file; None to save nothing.
        is_approval: whether to write approvals instead of plans.
        max_change, max_shrink: how many percent of a table's rows an approved refresh may change or
            remove; None for no bound.
        accept: the refusals that the approvals accept.
    """

    out: Path | None
    is_approval: bool
    max_change: float | None = None
    max_shrink: float | None = None
    accept: tuple[Accept, ...] = ()

    def check(self, *, offline: bool) -> None:
        """Raise a UsageError if options do not go together, or if the file cannot be written."""
        if not (self.out and self.is_approval) and (self.max_change, self.max_shrink) != (
            None,
            None,
        ):
            raise click.UsageError(
                "--max-change and --max-shrink are bounds of an approval: give --base and --out, "
                "too; the bounds of a declaration are in `guard`"
            )
        if self.out and not self.is_approval and offline:
            raise click.UsageError(
                "--out also saves the server's state: leave out --offline; or give --base, for "
                "an approval"
            )
        if self.out and (problem := _why_not_writable(self.out)):
            raise click.UsageError(f"--out {self.out} cannot be written: {problem}")

    def save(
        self, previews: Sequence[Preview], declared: Mapping[str, PublishedDatasource]
    ) -> tuple[list[Text], bool]:
        """Write the file, if `out` names a file.

        Returns:
            Lines to show, and false if writing failed, or if the file lacks a preview. The file
            need not contain the previews of removals.
        """
        if self.out is None:
            return [], True
        previews = [preview for preview in previews if preview.kind is not Status.REMOVED]
        option, kind, entries = self._entries(previews, declared)
        try:
            write_plan_file(self.out, entries, kind)
        except (OSError, StoreError) as error:
            # Return the problem as a line, so that users still see the plan, which may have taken
            # minutes.
            problem = (error.strerror if isinstance(error, OSError) else None) or error
            return [Text(f"{self.out} could not be written: {problem}")], False
        keys = {entry.key for entry in entries}
        missing = [preview.name for preview in previews if preview.key not in keys]
        lines = [f"Not in {self.out}: {name} cannot be refreshed as it is" for name in missing]
        if keys:
            lines.append(f"Saved: tableau-pipeline refresh {option} {self.out}")
        return [*map(Text, lines)], not missing

    def _entries(
        self, previews: Sequence[Preview], declared: Mapping[str, PublishedDatasource]
    ) -> tuple[str, type[PlanEntry], Sequence[PlanEntry]]:
        """Return the `refresh` option that reads the file, the type of entries, and the entries."""
        if self.is_approval:
            return "--approval", Approval, [*self._approvals(previews, declared)]
        return "--plan", SavedPlan, [preview.saved for preview in previews if preview.saved]

    def _approvals(
        self, previews: Sequence[Preview], declared: Mapping[str, PublishedDatasource]
    ) -> Iterator[Approval]:
        for preview in previews:
            # The preview of a new data source may be of the kind UNKNOWN, because the models have
            # not run yet. The first refresh will publish the data source, so approve a publish.
            kind = Status.PUBLISH if preview.is_new else preview.kind
            if kind in _NOT_PLANNED:
                continue
            columns = preview.columns
            yield Approval(
                key=preview.key,
                declaration=declared[preview.key].whole_digest(),
                kind=kind,
                moves=preview.moves,
                columns=columns and {table: tuple(names) for table, names in columns.items()},
                metadata=preview.metadata,
                max_change=self.max_change,
                max_shrink=self.max_shrink,
                accept=self.accept,
                by=current_user(),
            )


def _why_not_writable(file: Path) -> str:
    """Return why this user cannot create or replace a file; "" if the user probably can."""
    try:
        folder = next(folder for folder in file.absolute().parents if folder.exists())
        # Try to write, because file permissions alone reveal neither a read-only disk nor the rules
        # of a network file system.
        with TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)

"""Keep the pipeline's files as this release writes them, for the tests of later releases.

Run `python -m tableau_pipeline_tests.refresh.releases.keep` once, right before a release. Later
releases must be able to go on with these files.
"""

import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile

from tableau_pipeline import __version__
from tableau_pipeline.core.declaration import Declaration, Guard, Table
from tableau_pipeline.core.fields import FieldMetadata
from tableau_pipeline.core.hold import Hold, put_hold
from tableau_pipeline.core.policies import Diff, ReplaceAll
from tableau_pipeline.refresh.approval import Approval
from tableau_pipeline.refresh.plan_file import write_plan_file
from tableau_pipeline.refresh.preview import preview
from tableau_pipeline.refresh.saved_plan import SavedPlan
from tableau_pipeline_tests.refresh.support.crashes import Crashing, CrashPoint, KilledError
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import STAR, Pipeline, declared, session
from tableau_sandbox.testing import running_sandbox

FOLDER = Path(__file__).parent
LAX = Guard(min_rows=0, max_shrink=1.0)


def star() -> Declaration:
    """A star with declared metadata, which `write` publishes and updates."""
    fields = (FieldMetadata("delay", caption="Lateness"),)
    tables = (
        Table("flights", "flights", policy=Diff(("flight_id",)), guard=LAX, fields=fields),
        Table("airlines", "airlines", policy=ReplaceAll(), guard=LAX),
    )
    return replace(declared("Star", ("flights", "airlines"), relationships=STAR), tables=tables)


def held() -> Declaration:
    """A data source that `write` leaves held, with an update whose outcome is not recorded."""
    table = Table("flights", "held", policy=Diff(("flight_id",)), guard=LAX)
    return replace(declared("Held"), tables=(table,))


@contextmanager
def opened(folder: Path, declaration: Declaration) -> Generator[Pipeline]:
    """Run a sandbox with its files in `folder`; yield a pipeline that keeps its files there."""
    with running_sandbox(folder / "sandbox") as sandbox, session(sandbox) as eyes:
        yield Pipeline(sandbox, eyes, folder / "data", declaration)


def write(folder: Path) -> None:
    """Publish and update data sources; leave a hold, an open request, a plan and an approval."""
    with opened(folder, star()) as pipeline:
        pipeline.model("airlines", airlines())
        for count in (5, 9):
            pipeline.model("flights", flights(count))
            pipeline.run()
        pipeline.model("flights", flights(8))
        with session(pipeline.sandbox) as site:
            seen = preview(pipeline.refresh(), site)
        assert seen.saved
        approval = Approval(
            key=seen.key,
            declaration=pipeline.declaration.whole_digest(),
            kind=seen.kind,
            columns={name: tuple(columns) for name, columns in (seen.columns or {}).items()},
            max_shrink=50,
            by="ann",
        )
        write_plan_file(folder / "plan.json", [seen.saved], SavedPlan)
        write_plan_file(folder / "approval.json", [approval], Approval)
    with opened(folder, held()) as pipeline:
        for count in (4, 6):
            pipeline.model("flights", flights(count))
            crash = CrashPoint("outcome" if count == 6 else "never")
            with suppress(KilledError):
                pipeline.run(around={"around_journal": partial(Crashing, crash=crash)})
        pipeline.sandbox.wait_until_idle()
        put_hold(pipeline.journal.place, pipeline.journal.key, Hold(by="ann", why="looks odd"))


def main() -> None:
    """Write the archive with the files of this release."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        shutil.rmtree(folder / "data" / "extracts", ignore_errors=True)
        with ZipFile(FOLDER / f"{__version__}.zip", "w", ZIP_DEFLATED) as archive:
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                archive.write(file, file.relative_to(folder))


if __name__ == "__main__":
    main()

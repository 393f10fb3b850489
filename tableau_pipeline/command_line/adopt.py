"""The command `adopt`: propose declarations for data sources of other users."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain, count
from os.path import relpath
from pathlib import Path

import click
from rich.text import Text

from tableau_pipeline.command_line.output import Output, columns, reports, signed
from tableau_pipeline.command_line.project import open_project
from tableau_pipeline.components.adoption import Proposal, proposals

_TASKS = "These refresh tasks run until you delete them, in Tableau or by a request to the server:"


@click.command()
@click.option("--project", "path", metavar="PATH", required=True, help='Such as "Sales/Curated".')
@click.option("--write", is_flag=True, help="Write the files, into new folders.")
@click.option("--max-mb", default=1000, show_default=True, help="Largest file to download, in MB.")
@reports
def adopt(module: str | None, path: str, *, write: bool, max_mb: int, output: Output) -> int:
    """Propose declarations for the data sources that other users have published in a project.

    The command changes nothing on the site.

    Exit code: 0 every data source has a proposal, 1 some data sources have none, for the reasons in
    the output.
    """
    drafts = list[Proposal]()
    with (
        open_project(module, without_runs=True) as project,
        project.resources() as resources,
        resources.tableau.session(output.waits()) as site,
    ):
        folder, hyper = project.folder / "defs", resources.hyper.process
        for draft in proposals(site, hyper, path, project.datasources, largest=max_mb):
            output.progress(draft.name)
            drafts.append(draft)
    files = {
        draft.name: _new_folder(folder, draft.key) / "defs.yaml" for draft in drafts if draft.files
    }
    for draft in drafts:
        if write and draft.files:
            _write_files(files[draft.name].parent, draft)
    written = [*files] if write else []
    tasks = [(draft, task) for draft in drafts for task in draft.tasks or ()]
    failed = sum(1 for draft in drafts if draft.why_not)
    # A proposal has no rows if its file was not read. Show no count then, because 0 would be wrong.
    counts = {draft.name: sum(draft.rows.values()) if draft.rows else None for draft in drafts}
    rows = [
        (draft.name, counts[draft.name], draft.megabytes, draft.owner, _refresh_times(draft))
        for draft in drafts
    ]
    output.result(
        {"datasources": [asdict(draft) | {"written": draft.name in written} for draft in drafts]},
        columns(("DATA SOURCE", ">ROWS", ">MB", "OWNER", "REFRESHED"), rows),
        *(line for draft in drafts for line in _proposal_lines(draft, files, is_written=write)),
        Text(_TASKS) if tasks else None,
        *(signed("-", f"DELETE {task.url}  ({draft.name}, {task.when})") for draft, task in tasks),
        Text(f"{len(drafts) - failed} proposed ({len(written)} of them written), {failed} not."),
    )
    return int(failed > 0)


def _new_folder(place: Path, key: str) -> Path:
    """Return a path that does not exist yet: in `place`, named by the key or an extended key."""
    names = chain([key, f"{key}_datasource"], (f"{key}_{number}" for number in count(2)))
    return next(place / name for name in names if not (place / name).exists())


def _write_files(folder: Path, proposal: Proposal) -> None:
    folder.mkdir(parents=True)
    for name, text in proposal.files.items():
        (folder / name).write_text(text, "utf-8")


def _refresh_times(proposal: Proposal) -> str:
    if proposal.tasks is None:
        return "not known"
    return "; ".join(task.when for task in proposal.tasks) or "-"


def _proposal_lines(
    proposal: Proposal, files: Mapping[str, Path], *, is_written: bool
) -> Iterator[Text]:
    if proposal.why_not:
        yield signed("x", f"{proposal.name}: {proposal.why_not}")
        return
    state = "written" if is_written else "would be written"
    yield signed("+", f"{proposal.name}: {relpath(files[proposal.name])} {state}")
    yield from (Text(f"    {note}") for note in proposal.notes)

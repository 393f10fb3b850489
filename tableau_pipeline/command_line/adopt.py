"""The command `adopt`: propose declarations for what others have published."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain, count
from os.path import relpath
from pathlib import Path

import click
from rich.text import Text

from tableau_pipeline.command_line import open_project
from tableau_pipeline.command_line.output import Output, columns, reports, signed
from tableau_pipeline.components.adoption import Proposal, proposals

_TASKS = "Tasks go on until they are deleted: on the page of their data source in Tableau, or by"


@click.command()
@click.option("--project", "path", metavar="PATH", required=True, help='Such as "Sales/Curated".')
@click.option("--write", is_flag=True, help="Write the files, into new folders.")
@click.option("--max-mb", default=1000, show_default=True, help="Download no file above this.")
@reports
def adopt(module: str | None, path: str, *, write: bool, max_mb: int, output: Output) -> int:
    """Propose declarations for the data sources of a project that others have published.

    It changes nothing on the site.

    Exit code: 0 each has a proposal, 1 some have none, and the reason is told.
    """
    found = list[Proposal]()
    with (
        open_project(module, without_records=True) as project,
        project.resources() as resources,
        resources.tableau.session(output.waits()) as site,
    ):
        place, hyper = project.folder / "defs", resources.hyper.process
        for each in proposals(site, hyper, path, project.datasources, largest=max_mb):
            output.progress(each.name)
            found.append(each)
    files = {each.name: _folder(place, each.key) / "defs.yaml" for each in found if each.files}
    for each in found:
        if write and each.files:
            _write(files[each.name].parent, each)
    written = [*files] if write else []
    tasks = [(each, task) for each in found for task in each.tasks or ()]
    left = sum(1 for each in found if each.why_not)
    # Without rows, its file was not read.
    counts = {e.name: sum(e.rows.values()) if e.rows else None for e in found}
    rows = [(e.name, counts[e.name], e.megabytes, e.owner, _when(e)) for e in found]
    output.result(
        {"datasources": [asdict(each) | {"written": each.name in written} for each in found]},
        columns(("DATA SOURCE", ">ROWS", ">MB", "OWNER", "REFRESHED"), rows),
        *(line for each in found for line in _told(each, files, is_written=write)),
        Text(_TASKS) if tasks else None,
        *(signed("-", f"DELETE {task.url}  ({each.name}, {task.when})") for each, task in tasks),
        Text(f"{len(found) - left} proposed, {len(written)} of them written, {left} not."),
    )
    return int(left > 0)


def _folder(place: Path, key: str) -> Path:
    """A folder for a declaration; the pipeline's own may have the name of a data source."""
    names = chain([key, f"{key}_datasource"], (f"{key}_{number}" for number in count(2)))
    return next(place / name for name in names if not (place / name).exists())


def _write(folder: Path, proposal: Proposal) -> None:
    folder.mkdir(parents=True)
    for name, text in proposal.files.items():
        (folder / name).write_text(text, "utf-8")


def _when(proposal: Proposal) -> str:
    if proposal.tasks is None:
        return "not known"
    return "; ".join(each.when for each in proposal.tasks) or "-"


def _told(proposal: Proposal, files: Mapping[str, Path], *, is_written: bool) -> Iterator[Text]:
    if proposal.why_not:
        yield signed("x", f"{proposal.name}: {proposal.why_not}")
        return
    done = "written" if is_written else "would be written"
    yield signed("+", f"{proposal.name}: {relpath(files[proposal.name])} {done}")
    yield from (Text(f"    {note}") for note in proposal.notes)

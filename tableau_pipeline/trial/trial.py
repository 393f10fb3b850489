"""A trial of a site: its steps in order, with what they found kept for the next start."""

import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from tableau_pipeline.core.declaration import Project, project_path
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.setup import sites_folder
from tableau_pipeline.refresh.updates import record_of
from tableau_pipeline.trial import rehearsal, requests
from tableau_pipeline.trial.facts import FACTS, Answer
from tableau_pipeline.trial.workshop import QueueError, State, Workshop, new_key

STEPS = (*requests.STEPS, *rehearsal.STEPS)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial came to.

    Attributes:
        answers: in the order of the facts.
        failed: what went wrong, by step.
        left: data sources that could not be removed.
        waits: the job for which it did not wait longer, in a sentence; None if there is none.
    """

    answers: Sequence[Answer]
    failed: dict[str, str]
    left: Sequence[str]
    waits: str | None = None


def try_out(
    site: TableauSite,
    hyper: Hyperd,
    project: Project,
    *,
    folder: Path,
    backups: Path | str,
    wait: float,
    resume: bool,
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Trial:
    """Try out what a site does, with throwaway data sources in a project; all of them are removed.

    Args:
        folder: for all trials on this host; what is not finished is kept there.
        backups: the folder, or its URL, beside which the records of sites are.
        wait: the seconds that a job may wait and run.
        resume: go on with an unfinished trial in this project.
        tell: called before each step, with its name.
        sleep: takes seconds.

    Raises:
        RefusedError: there is no such project, or nothing to resume; or another trial is running.
        RefreshError: the site fails, or refuses what all else needs.
    """
    project_id = _project_id(site, project)
    own = folder / hashlib.sha256(f"{site.url}\n{site.site}".encode()).hexdigest()[:16]
    own.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(own / "lock", timeout=0):
            return _tried_out(
                Workshop(
                    site=site,
                    record=record_of(site, sites_folder(backups)),
                    hyper=hyper,
                    project=project,
                    project_id=project_id,
                    folder=own / "work",
                    backups=backups,
                    state=_state(own / "state.json", project_path(project), resume=resume),
                    wait=wait,
                    sleep=sleep,
                    save=lambda state: _save(own / "state.json", state),
                ),
                tell,
            )
    except Timeout:
        why = f"Another trial of {site.url} runs on this host: wait for it"
        raise RefusedError(why, code=Code.IN_USE) from None


def _project_id(site: TableauSite, project: Project) -> str:
    if found := site.find_project(project):
        return found
    raise RefusedError(
        f'There is no project "{project_path(project)}" that this user may see: create one for '
        "trials, or name another one",
        code=Code.NOT_ON_SITE,
    )


def _tried_out(shop: Workshop, tell: Callable[[str], None]) -> Trial:
    failed: dict[str, str] = {}
    waits = None
    tell("removing what earlier trials left")
    shop.clean()
    shop.update(key=new_key(), jobs=())
    shutil.rmtree(shop.folder, ignore_errors=True)
    shop.folder.mkdir()
    try:
        for name, step in STEPS:
            if name in shop.state.done:
                continue
            tell(name)
            try:
                step(shop)
            except QueueError as error:
                waits = str(error)
                break
            except RefreshError as error:
                failed[name] = str(error)
                continue
            shop.update(done=(*shop.state.done, name))
    finally:
        # Also after Ctrl-C.
        left = shop.clean()
        shutil.rmtree(shop.folder, ignore_errors=True)
    if not (waits or failed):
        shop.update(done=())
    shop.unknown("its step did not come to an end", *(() if waits else FACTS))
    found = {each.fact: each for each in shop.state.answers}
    return Trial([found[name] for name in FACTS if name in found], failed, left, waits)


def _state(file: Path, project: str, *, resume: bool) -> State:
    before = None
    with suppress(FileNotFoundError, ValidationError):
        before = State.model_validate_json(file.read_text("utf-8"))
    if not resume:
        # Jobs of an earlier trial may still run.
        return State.new(project).model_copy(update={"jobs": before.jobs if before else ()})
    if before is None or before.project != project or not before.done:
        raise RefusedError(
            f'There is no unfinished trial in "{project}": leave out --resume', code=Code.IN_USE
        )
    return before


def _save(file: Path, state: State) -> None:
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(state.model_dump_json(indent=1), "utf-8")
    unfinished.replace(file)

"""Try out a site: run the steps in order, and keep their answers for the next start."""

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
    """The result of a trial.

    Attributes:
        answers: the answers, in the order of the facts.
        failed: the error of each step that failed, by the name of the step.
        left: the names of data sources that could not be removed.
        waits: a sentence about the job that took too long; None if there was no such job.
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
    """Try out a site with data sources that the trial creates in a project, and removes again.

    Args:
        folder: the folder for the state of all trials on this host.
        backups: the folder for saved data sources; its parent also has the records of sites.
        wait: how many seconds to wait for a job.
        resume: whether to continue an unfinished trial in this project.
        tell: a function to call with the name of each step, before the step.
        sleep: a function that waits for a number of seconds.

    Raises:
        RefusedError: there is no such project or no trial to resume, or another trial runs.
        RefreshError: the site fails, or refuses a request that all steps need.
    """
    project_id = _project_id(site, project)
    site_folder = folder / hashlib.sha256(f"{site.url}\n{site.site}".encode()).hexdigest()[:16]
    site_folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(site_folder / "lock", timeout=0):
            return _run_steps(
                Workshop(
                    site=site,
                    record=record_of(site, sites_folder(backups)),
                    hyper=hyper,
                    project=project,
                    project_id=project_id,
                    folder=site_folder / "work",
                    backups=backups,
                    state=_state(site_folder / "state.json", project_path(project), resume=resume),
                    wait=wait,
                    sleep=sleep,
                    save=lambda state: _save(site_folder / "state.json", state),
                ),
                tell,
            )
    except Timeout:
        reason = f"Another trial of {site.url} runs on this host: wait for it"
        raise RefusedError(reason, code=Code.IN_USE) from None


def _project_id(site: TableauSite, project: Project) -> str:
    if project_id := site.find_project(project):
        return project_id
    raise RefusedError(
        f'There is no project "{project_path(project)}" that this user may see: create one for '
        "trials, or name another one",
        code=Code.NOT_ON_SITE,
    )


def _run_steps(shop: Workshop, tell: Callable[[str], None]) -> Trial:
    """Run all unfinished steps; clean up before the first step and after the last step."""
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
        # Clean up even after Ctrl-C.
        remaining = shop.clean()
        shutil.rmtree(shop.folder, ignore_errors=True)
    if not (waits or failed):
        shop.update(done=())
    shop.unknown("its step was not completed", *(() if waits else FACTS))
    answers = {answer.fact: answer for answer in shop.state.answers}
    return Trial([answers[name] for name in FACTS if name in answers], failed, remaining, waits)


def _state(file: Path, project: str, *, resume: bool) -> State:
    before = None
    with suppress(FileNotFoundError, ValidationError):
        before = State.model_validate_json(file.read_text("utf-8"))
    if not resume:
        # Keep the ids of jobs of an earlier trial, because these jobs may still run.
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

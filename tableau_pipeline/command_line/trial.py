"""`doctor --trial`: publish a few small data sources to find out how a site behaves."""

from collections.abc import Iterator
from dataclasses import asdict

import dagster as dg
from rich.console import RenderableType
from rich.text import Text

from tableau_pipeline.command_line.output import Output, columns, signed
from tableau_pipeline.command_line.project import prepare
from tableau_pipeline.resources import data_dir, resources_from_env, shared_place
from tableau_pipeline.trial.facts import FACTS, Answer, Verdict
from tableau_pipeline.trial.trial import Trial, try_out

_SIGNS = {Verdict.AS_ASSUMED: "ok", Verdict.DIFFERENT: "!", Verdict.UNKNOWN: "-"}

_ORDER = (Verdict.DIFFERENT, Verdict.UNKNOWN, Verdict.AS_ASSUMED)


def run_trial(project: str, *, wait: float, resume: bool, output: Output) -> int:
    """Try out the site in a project, show how the site behaves, and return the exit code."""
    prepare()
    available = resources_from_env()
    with (
        dg.build_resources({name: available[name] for name in ("hyper", "tableau")}) as resources,
        resources.tableau.session(output.waits(), counts=True, people=True) as site,
        output.bar() as bar,
    ):

        def tell(step: str) -> None:
            bar(step)
            output.progress(step)

        trial = try_out(
            site,
            resources.hyper.process,
            project,
            folder=data_dir() / "trials",
            backups=shared_place("kept"),
            wait=wait,
            resume=resume,
            tell=tell,
        )
        release = site.release
    output.result({"release": release, **_data(trial)}, *_answer_lines(trial, release))
    return int(bool(trial.failed or trial.left or trial.waits))


def _data(trial: Trial) -> dict[str, object]:
    facts = [
        asdict(FACTS[answer.fact]) | answer.model_dump(mode="json") for answer in trial.answers
    ]
    for fact in facts:
        del fact["name"]
    return {"facts": facts, "failed": trial.failed, "left": trial.left, "waits": trial.waits}


def _answer_lines(trial: Trial, release: str) -> Iterator[RenderableType]:
    # First show the answers that need attention.
    answers = sorted(trial.answers, key=lambda answer: _ORDER.index(answer.verdict))
    rows = [
        (_SIGNS[answer.verdict], answer.fact, answer.verdict, _meaning(answer))
        for answer in answers
    ]
    yield columns(("", "FACT", "ANSWER", "WHAT IT MEANS"), rows)
    for step, error in trial.failed.items():
        yield signed("x", f"{step}: {error}")
    for name in trial.left:
        yield signed("x", f'"{name}" could not be deleted: delete it in Tableau')
    if trial.waits:
        yield signed("x", trial.waits)
    counts = {
        verdict: sum(answer.verdict is verdict for answer in trial.answers) for verdict in _ORDER
    }
    yield Text(
        f"{release}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}."
    )


def _meaning(answer: Answer) -> str:
    fact = FACTS[answer.fact]
    if answer.verdict is Verdict.AS_ASSUMED:
        return fact.assumed
    if answer.verdict is Verdict.UNKNOWN:
        return answer.detail
    return f"{answer.detail}\n-> {fact.if_different}"

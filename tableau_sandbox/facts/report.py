"""What came of the facts, for people and for programs."""

import json
from collections.abc import Iterable, Sequence

from tableau_sandbox.facts.run import Outcome, Verdict
from tableau_sandbox.facts.scene import Scene


def as_text(outcomes: Sequence[Outcome], scene: Scene) -> str:
    """Return a table with a score for each endpoint, and then each deviation."""
    scores = _scores(outcomes)
    width = max((len(endpoint) for endpoint, _, _ in scores), default=0)
    lines = [f"Tableau {scene.product}, REST API {scene.version}", ""]
    lines += [f"{endpoint:<{width}}  {held:>3} of {shown}" for endpoint, held, shown in scores]
    held, shown = sum(score[1] for score in scores), sum(score[2] for score in scores)
    lines += ["-" * (width + 12), f"{'all':<{width}}  {held:>3} of {shown}"]
    for outcome in _with(outcomes, Verdict.DEVIATES):
        lines += [
            "",
            f"{outcome.fact.name}: {outcome.fact.claim}",
            f"  endpoint  {outcome.fact.endpoint}",
            f"  source    {outcome.fact.source.name} ({outcome.fact.source.grade})",
            f"  expected  {outcome.expected}",
            f"  got       {outcome.got}",
        ]
    for reason, names in _reasons(outcomes).items():
        lines += ["", f"not shown: {reason}", f"  {', '.join(names)}"]
    return "\n".join(lines) + "\n"


def as_json(outcomes: Sequence[Outcome], scene: Scene) -> str:
    """Return the same as JSON, one object for each fact. It does not name the server."""
    facts = [
        {
            "name": outcome.fact.name,
            "claim": outcome.fact.claim,
            "endpoint": outcome.fact.endpoint,
            "source": outcome.fact.source.name,
            "grade": outcome.fact.source.grade,
            "verdict": outcome.verdict,
            "expected": outcome.expected,
            "got": outcome.got,
        }
        for outcome in outcomes
    ]
    scores = [
        {"endpoint": endpoint, "holds": held, "shown": shown}
        for endpoint, held, shown in _scores(outcomes)
    ]
    server = {"product": scene.product, "rest_api": scene.version}
    return json.dumps({"server": server, "scores": scores, "facts": facts}, indent=2) + "\n"


def _scores(outcomes: Iterable[Outcome]) -> list[tuple[str, int, int]]:
    """Return each endpoint with how many of its facts hold, and how many were shown."""
    scores: dict[str, tuple[int, int]] = {}
    for outcome in outcomes:
        held, shown = scores.get(outcome.fact.endpoint, (0, 0))
        scores[outcome.fact.endpoint] = (
            held + (outcome.verdict is Verdict.HOLDS),
            shown + (outcome.verdict is not Verdict.NOT_SHOWN),
        )
    # By path first, so that all methods of a path stand together.
    in_order = sorted(scores, key=lambda endpoint: endpoint.split()[::-1])
    return [(endpoint, *scores[endpoint]) for endpoint in in_order]


def _reasons(outcomes: Iterable[Outcome]) -> dict[str, list[str]]:
    """Return the names of the facts that could not be shown, by the reason."""
    names: dict[str, list[str]] = {}
    for outcome in _with(outcomes, Verdict.NOT_SHOWN):
        names.setdefault(outcome.got, []).append(outcome.fact.name)
    return names


def _with(outcomes: Iterable[Outcome], verdict: Verdict) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.verdict is verdict]

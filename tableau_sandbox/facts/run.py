"""Check facts one after another, whatever comes of each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from requests import RequestException
from tableauhyperapi import HyperException

from tableau_sandbox.facts.answer import Deviation, NotShown
from tableau_sandbox.facts.fact import Fact
from tableau_sandbox.facts.playground import Playground
from tableau_sandbox.facts.scene import Scene


class Verdict(StrEnum):
    """What became of a fact."""

    HOLDS = "holds"
    DEVIATES = "deviates"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one fact on one server.

    Attributes:
        fact: the fact.
        verdict: whether it holds.
        expected: what it says, if the server deviates.
        got: what the server did instead, or why the fact could not be shown.
    """

    fact: Fact
    verdict: Verdict
    expected: str = ""
    got: str = ""


def check(facts: Iterable[Fact], scene: Scene, playground: Playground | None) -> Iterator[Outcome]:
    """Check facts; without a playground, only those that change nothing."""
    for fact in facts:
        if fact.read is not None or playground is not None:
            yield _outcome(fact, scene, playground)


def check_one(fact: Fact, scene: Scene, playground: Playground | None) -> None:
    """Check one fact.

    Raises:
        Deviation: it does not hold.
        NotShown: the site or the server lacks what it takes.
    """
    if fact.read is not None:
        fact.read(scene)
    elif fact.write is not None and playground is not None:
        fact.write(playground)


def _outcome(fact: Fact, scene: Scene, playground: Playground | None) -> Outcome:
    try:
        check_one(fact, scene, playground)
    except Deviation as deviation:
        expected, got = deviation.expected, deviation.got
        return Outcome(fact=fact, verdict=Verdict.DEVIATES, expected=expected, got=got)
    except NotShown as reason:
        return Outcome(fact=fact, verdict=Verdict.NOT_SHOWN, got=str(reason))
    except (RequestException, HyperException, ValueError, LookupError) as error:
        # An answer that breaks off, or that has another form than a fact can read.
        got = f"{type(error).__name__}"
        return Outcome(fact=fact, verdict=Verdict.DEVIATES, expected=fact.claim, got=got)
    return Outcome(fact=fact, verdict=Verdict.HOLDS)

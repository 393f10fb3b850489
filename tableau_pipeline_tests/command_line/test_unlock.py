"""The command `unlock`, which ends the claim (the lock) of a lost refresh."""

import getpass
import logging
from collections.abc import Callable
from io import StringIO
from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.command_line.main import WRONG_USAGE
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.journal import Claim, ClaimRelease, History, Owner
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.errors import OvertakenError
from tableau_pipeline.refresh.claim import HeldClaim, claimed
from tableau_pipeline_tests.command_line.conftest import World, documented, masked
from tableau_pipeline_tests.components.support.location import records_of
from tableau_pipeline_tests.core.test_journal import intent
from tableau_pipeline_tests.refresh.support.models import flights

KEY = "arrivals"
# The owner is on another host, so no process here can see whether the owner has ended.
OWNER = Owner(run_id="lost", label="process 4711 on host-b", boot="host-b", pid=4711)


@pytest.fixture(scope="module")
def declared(world: World) -> World:
    """A project with one data source, which was refreshed once."""
    world.declare(KEY)
    world.model(KEY, flights(8))
    assert world.run("refresh", KEY).code == 0
    return world


def journal(key: str = KEY) -> StoredJournal:
    """The journal, as a process outside of Dagster's runs opens it."""
    return journal_of(dg.DagsterInstance.ephemeral(), key)


def hold(owner: Owner = OWNER, key: str = KEY) -> HeldClaim:
    """Record and return the claim of a refresh on another host, for later use by a test."""
    made = journal(key)
    claim = Claim(refresh=made.history().refresh + 1, owner=owner)
    history = made.append(lambda _: claim, after=made.history())
    return HeldClaim(claim, history, made)


def history() -> History:
    return journal().history()


@pytest.mark.slow
def test_the_next_refresh_goes_on(declared: World):
    """Prevents: a lost host blocks refreshes for hours, or later sends its older rows."""
    lost = hold()
    lost.append(intent("sent", lost.number, luid=history().recovered.luid))
    result = declared.run("unlock", KEY, "--yes")
    assert (result.code, history().claim) == (0, None)
    shown = documented("tableau-pipeline unlock arrivals --yes")
    assert masked(result.errors + result.text) == shown
    # The journal records the user who ended the claim.
    with dg.DagsterInstance.get() as instance:
        *_, released = records_of(instance, KEY)
    assert isinstance(released, ClaimRelease)
    assert (released.claim, released.unlocked_by) == (lost.claim.id, getpass.getuser())
    assert released.run_id == lost.claim.owner.run_id
    for use in (lost.check_fence, lost.close, lambda: lost.append(intent("next", lost.number))):
        with pytest.raises(OvertakenError, match="overtaken by a user, who ended its claim"):
            use()
    # The next refresh first examines the request that the lost refresh sent.
    assert [each.request_id for each in history().intents] == ["sent"]
    result = declared.run("refresh", KEY)
    assert result.code == 0, result.text + result.errors
    assert history().intents == ()
    with pytest.raises(OvertakenError, match="overtaken by a later refresh"):
        lost.check_fence()
    # The lost refresh may still report the outcome of its request, without effect.
    lost.report(intent("sent", lost.number, outcome=Outcome.FAILED))
    assert (history().intents, history().recovered.distrust) == ((), None)


def test_a_refresh_that_waits_goes_on(declared: World):
    """Prevents: a refresh waits until its timeout for a claim that a user has ended."""
    lost, mine, waits = hold(), journal(), []

    def asleep(seconds: float) -> None:
        waits.append(seconds)
        assert declared.run("unlock", KEY, "--yes").code == 0

    log = logging.getLogger(__name__)
    with claimed(mine, what=KEY, timeout=60, sleep=asleep, log=log) as held:
        assert held.number == lost.number + 1
    assert len(waits) == 1


def test_it_asks(declared: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a typing mistake ends the claim of a running refresh."""
    lost = hold()
    for answer in ("\n", "n\n", ""):
        monkeypatch.setattr("sys.stdin", StringIO(answer))
        result = declared.run("unlock", KEY)
        assert (result.code, result.text) == (130, "")
        assert "process 4711 on host-b, which began " in result.errors
        assert "It may still run" in result.errors
        assert "End its claim?" in result.errors
    assert history().claim == lost.claim
    lost.check_fence()
    monkeypatch.setattr("sys.stdin", StringIO("y\n"))
    # The command takes the name of the data source as well as its key.
    assert declared.run("unlock", "Arrivals").code == 0
    assert history().claim is None


class Meanwhile(StringIO):
    """Standard input that answers "y", but first calls `happens`."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__("y\n")
        self._happens = happens

    def readline(self, *size: Any) -> str:
        self._happens()
        return super().readline(*size)


def test_only_the_claim_that_was_shown_ends(declared: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `unlock` ends a refresh that began after the question to the user."""
    lost, begun = hold(), []

    def next_one() -> None:
        lost.close()
        begun.append(hold(OWNER.model_copy(update={"label": "process 4712 on host-b"})))

    monkeypatch.setattr("sys.stdin", Meanwhile(next_one))
    result = declared.run("unlock", KEY)
    assert (result.code, result.text) == (0, "The claim of process 4711 on host-b has ended.\n")
    (other,) = begun
    other.check_fence()
    other.close()
    assert history().number == other.history.number


def test_nobody_holds_it(declared: World):
    """Prevents: `unlock` without a claim adds a record or reports an error."""
    before = history()
    result = declared.run("unlock", KEY)
    assert (result.code, result.text, result.errors) == (0, "No refresh holds it.\n", "")
    assert declared.run("unlock", KEY, "--json").data == {"key": KEY, "unlocked": None}
    result = declared.run("unlock", "arrival")
    assert result.code == WRONG_USAGE
    assert 'did you mean "arrivals"' in result.errors
    assert history() == before


def test_as_json(declared: World):
    """Prevents: a program must read prose to know which claim `unlock` ended."""
    hold()
    result = declared.run("unlock", KEY, "--yes", "--json")
    assert (result.code, result.errors) == (0, "")
    assert result.data == {"key": KEY, "unlocked": "lost"}
    assert history().claim is None


def test_it_says_whether_it_has_ended(declared: World):
    """Prevents: `unlock` does not say that the process of the claim has ended."""
    hold(
        OWNER.model_copy(
            update={
                "boot": journal().owner.boot,
                "namespace": journal().owner.namespace,
                "pid": 2**22 + 1,
            }
        )
    )
    assert "holds arrivals. It has ended" in declared.run("unlock", KEY, "--yes").errors
    assert history().claim is None


def test_a_user_without_a_name(declared: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `unlock` fails in a container whose user has only a number."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nameless)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    hold()
    assert declared.run("unlock", KEY, "--yes").code == 0
    with dg.DagsterInstance.get() as instance:
        *_, released = records_of(instance, KEY)
    assert isinstance(released, ClaimRelease)
    assert released.unlocked_by == "user 4711"

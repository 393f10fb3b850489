"""Run whole refreshes, like those in production, on throwaway data sources of a site."""

import logging
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pyarrow as pa
import requests
from requests.adapters import HTTPAdapter

from tableau_pipeline.core.declaration import Declaration, Guard, Republish, Table
from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.core.journal_store import script_journal
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefreshError, UnknownOutcomeError
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.trial.facts import Verdict
from tableau_pipeline.trial.models import write_model
from tableau_pipeline.trial.requests import Steps, add_edits, has_edits
from tableau_pipeline.trial.workshop import Rows, Workshop

_LOG = logging.getLogger(__name__)
_ANY_LOSS = Guard(max_shrink=1)
# Always send updates. By default, a refresh would soon publish a small table in full, because a
# change of the table is as large as the whole file.
_ALWAYS_UPDATES = Republish(growth=1_000_000)
# The time limit for an answer, in seconds: enough to send a request, but too short for an answer.
_NO_ANSWER_SECONDS = 0.001
# How many seconds to wait until the time stamp shows an update whose answer was lost.
_STAMP_SECONDS = 30


def by_update(shop: Workshop) -> None:
    """Refresh twice. Before the second refresh, change, add and remove rows."""
    fact, table = "refresh-by-update", "rows"
    _write(shop, table, [(number, f"row {number}") for number in range(1, 9)])
    _refresh_tables(shop, "refresh", table)
    rows = [(1, "changed"), *((number, f"row {number}") for number in range(3, 10))]
    _write(shop, table, rows)
    report = _refresh_tables(shop, "refresh", table)
    problem = report.decision if report.decision == "update" else _decision_text(report)
    _answer_rows(shop, fact, "refresh", {"Extract": rows}, None if problem == "update" else problem)


def over_edits(shop: Workshop) -> None:
    """Add a field, as a user would, then refresh in full with other rows."""
    fact, table = "refresh-keeps-work", "rows"
    _ensure_published(shop, table)
    remote = shop.found("refresh")
    if problem := add_edits(shop, "refresh", remote):
        shop.unknown(f"no package could be published: {problem}", fact)
        return
    rows = [(number, f"row {number}") for number in range(11, 15)]
    _write(shop, table, rows)
    report = _refresh_tables(shop, "refresh", table, options=Options(full=True))
    is_kept = has_edits(shop, remote.luid)
    problem = None if is_kept else f"it is gone after: {report.decision}"
    _answer_rows(shop, fact, "refresh", {"Extract": rows}, problem)


def of_two_tables(shop: Workshop) -> None:
    """Refresh a data source of two tables."""
    fact, rows = "refresh-of-two-tables", [(number, f"row {number}") for number in range(1, 5)]
    for table in ("orders", "people"):
        _write(shop, table, rows)
    _refresh_tables(shop, "refresh two tables", "orders", "people")
    _answer_rows(shop, fact, "refresh two tables", {"orders": rows, "people": rows}, None)


def after_a_lost_answer(shop: Workshop) -> None:
    """Drop the connection right after an update is sent, then refresh again."""
    fact, table = "refresh-after-a-lost-answer", "rows"
    _ensure_published(shop, table)
    rows = [(number, f"row {number}") for number in range(1, 7)]
    _write(shop, table, rows)
    try:
        with _without_answers(shop.site):
            report = _refresh_tables(shop, "refresh", table)
    except UnknownOutcomeError:
        # The next refresh finds out whether the server has carried out the update.
        report = None
    if report:
        shop.unknown(f"no update was sent: {report.decision}", fact)
        return
    try:
        _refresh_tables(shop, "refresh", table)
    except RefreshError as error:
        shop.as_assumed(fact, unless=str(error))
        return
    _answer_rows(shop, fact, "refresh", {"Extract": rows}, None)


def _ensure_published(shop: Workshop, table: str) -> None:
    """Publish the data source, if this start of the trial has not published it.

    An earlier start has used another name for the data source.
    """
    if shop.find("refresh") is None:
        _write(shop, table, [(1, "row 1")])
        _refresh_tables(shop, "refresh", table)


def _write(shop: Workshop, table: str, rows: Rows) -> None:
    columns = {
        "id": pa.array([row[0] for row in rows], pa.int64()),
        "name": [row[1] for row in rows],
    }
    write_model(_store(shop), table, pa.table(columns))


def _store(shop: Workshop) -> SnapshotStore:
    return SnapshotStore(shop.folder / "snapshots")


def _refresh_tables(
    shop: Workshop, kind: str, *tables: str, options: Options | None = None
) -> Refreshed:
    """Refresh a data source of these tables."""
    key = shop.name(kind).replace(" ", "_").replace("-", "_")
    edges = (Relationship(tables[0], tables[1], (("id", "id"),)),) if len(tables) > 1 else ()
    declaration = Declaration(
        name=shop.name(kind),
        key=key,
        project=shop.project,
        tables=tuple(Table(name, name, policy=Diff(("id",)), guard=_ANY_LOSS) for name in tables),
        relationships=edges,
        republish=_ALWAYS_UPDATES,
    )
    setup = Setup(
        declaration=declaration,
        snapshots=_store(shop),
        journal=script_journal(shop.folder / "journal", key),
        server=lambda: nullcontext(shop.site),
        hyper=lambda: shop.hyper,
        folder=shop.folder,
        backups=shop.backups,
        log=_LOG,
        timeouts=Timeouts(
            claim=60,
            job=shop.wait,
            queue=shop.wait,
            # Do not wait longer for a gateway: a late update would only send the same rows again.
            arrival=_STAMP_SECONDS,
            timestamp=_STAMP_SECONDS,
        ),
        sleep=shop.sleep,
    )
    return refresh(setup, options or Options())


def _decision_text(report: Refreshed) -> str:
    return f"{report.decision}: {report.reason}"


def _answer_rows(
    shop: Workshop, fact: str, kind: str, rows: dict[str, Any], wrong: str | None
) -> None:
    """Answer that a fact is as assumed, unless `wrong` names a problem, or the rows differ."""
    published = shop.rows(shop.found(kind))
    expected = {table: list(table_rows) for table, table_rows in rows.items()}
    shop.as_assumed(fact, unless=wrong)
    if published != expected:
        shop.answer(fact, Verdict.DIFFERENT, f"the published rows are wrong: {published}")


class _NoAnswer(HTTPAdapter):
    """Sends data updates, but drops their answers; sends all other requests as usual."""

    def __init__(self, usual: Any) -> None:
        super().__init__(max_retries=0)
        self._usual = usual

    def send(self, request: Any, *args: Any, **settings: Any) -> requests.Response:
        """Send a request."""
        if request.method != "PATCH":
            return self._usual.send(request, *args, **settings)
        with suppress(requests.ReadTimeout):
            # A server nearby may answer within the time limit: drop the answer.
            super().send(
                request, *args, **{**settings, "timeout": (30, _NO_ANSWER_SECONDS)}
            ).close()
        raise requests.ConnectionError("dropped after the request was sent")


@contextmanager
def _without_answers(site: TableauSite) -> Generator[None]:
    """Lose the answers to all data updates in the block."""
    session, url = site.tsc.session, site.url
    usual = session.get_adapter(url)
    session.mount(url, _NoAnswer(usual))
    try:
        yield
    finally:
        del session.adapters[url]


STEPS: Steps = (
    ("refresh by an update", by_update),
    ("refresh over the work of people", over_edits),
    ("refresh two tables", of_two_tables),
    ("refresh after a lost answer", after_a_lost_answer),
)

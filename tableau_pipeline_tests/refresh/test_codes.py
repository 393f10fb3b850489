"""The codes of refusals: a case that produces each code, its display and its explanation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tableauserverclient as TSC

from tableau_pipeline.actions.batch import all_of
from tableau_pipeline.command_line.project import open_project
from tableau_pipeline.components.git_revision import _git
from tableau_pipeline.core.declaration import Entitlements, Guard, Reconcile, Table
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.fields import FieldMetadata, MetadataPolicy
from tableau_pipeline.core.hold import Hold
from tableau_pipeline.core.journal import read_record
from tableau_pipeline.core.lake_table import LakeTable
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.process import limit_in_bytes
from tableau_pipeline.ingest.options import matching_files
from tableau_pipeline.outcome import Accept, Code, Refusal, Status, accepts_of
from tableau_pipeline.publishing.errors import update_refused
from tableau_pipeline.publishing.uploads import block_size
from tableau_pipeline.refresh.approval import Approval
from tableau_pipeline.refresh.ownership import Ownership
from tableau_pipeline.refresh.preview import preview
from tableau_pipeline.refresh.refresh import rollback
from tableau_pipeline.refresh.row_differences import diff
from tableau_pipeline.rendering import Face, rendered
from tableau_pipeline.trial.trial import _state
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


@dataclass(frozen=True)
class Case:
    """What a test needs to provoke a refusal.

    Attributes:
        pipeline: refreshes a data source that is not published yet.
        folder: an empty folder.
    """

    pipeline: Pipeline
    folder: Path
    patch: pytest.MonkeyPatch

    def published(self) -> Pipeline:
        """Publish the data source with eight rows, and return its pipeline."""
        self.pipeline.run()
        return self.pipeline


CASES: dict[Code, Callable[[Case], object]] = {}


def of(code: Code) -> Callable[[Callable[[Case], object]], None]:
    """Register a function for a code: it raises or returns a refusal with that code."""
    return lambda produce: CASES.update({code: produce})


@of(Code.TOO_FEW_ROWS)
def _(case: Case) -> None:
    case.pipeline.policy(Diff(("flight_id",)), guard=Guard(min_rows=100))
    case.pipeline.run()


@of(Code.ROWS_LOST)
def _(case: Case) -> None:
    case.published().model("flights", flights(2))
    case.pipeline.run()


@of(Code.ROWS_CHANGED)
def _(case: Case) -> None:
    case.pipeline.policy(Diff(("flight_id",)), guard=Guard(max_change=0.5))
    case.published().model("flights", flights(delay=1))
    case.pipeline.run()


@of(Code.NOT_APPROVED)
def _(case: Case) -> None:
    approval = Approval(key="flights", declaration="another", kind=Status.UPDATE, by="ann")
    case.pipeline.run(approval=approval)


@of(Code.PLAN_MOVED)
def _(case: Case) -> None:
    saved = preview(case.pipeline.refresh(), case.pipeline.eyes).saved
    case.published().run(saved=saved)


@of(Code.ROWS_NOT_KNOWN)
def _(case: Case) -> None:
    case.published().declare(reconcile=Reconcile(max_mb=1e-6, by="download"))
    case.pipeline.journal.forget()
    case.pipeline.run()


@of(Code.ROWS_REJECTED)
def _(case: Case) -> None:
    case.pipeline.rejected["flights"] = ["plausible"]
    case.pipeline.run()


@of(Code.SCHEMA_CHANGED)
def _(case: Case) -> None:
    case.published().model("flights", flights().drop_columns("delay"))
    case.pipeline.run()


@of(Code.METADATA_CONFLICT)
def _(case: Case) -> None:
    def caption(text: str) -> None:
        (table,) = case.pipeline.declaration.tables
        fields = (FieldMetadata("delay", caption=text),)
        case.pipeline.declare(tables=(replace(table, fields=fields),))

    case.pipeline.declare(metadata=MetadataPolicy(on_conflict="refuse"))
    caption("Delay")
    case.published()
    other_users.captions_a_column(case.pipeline, "delay", "Lateness")
    caption("Minutes late")
    case.pipeline.run()


@of(Code.WORK_WOULD_GO)
def _(case: Case) -> None:
    other_users.adds_a_calculated_field(case.published())
    case.pipeline.model("flights", flights().drop_columns("flight_id"))
    case.pipeline.run(Accept.SCHEMA)


@of(Code.FILTER_GONE)
def _(case: Case) -> None:
    other_users.filters_rows(case.published())
    case.pipeline.run()
    other_users.filters_no_rows(case.pipeline)
    case.pipeline.run()


@of(Code.FILTER_LOST)
def _(case: Case) -> None:
    other_users.filters_rows(case.published())
    case.pipeline.model("flights", flights().drop_columns("carrier"))
    case.pipeline.run(*Accept)


@of(Code.FILTER_MISSING)
def _(case: Case) -> None:
    case.published().declare(guarded=True)
    case.pipeline.run()


@of(Code.ENTITLEMENTS)
def _(case: Case) -> None:
    case.pipeline.declare(entitlements=Entitlements("flights", "carrier"))
    case.pipeline.run()


_NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
_OURS = frozenset({"tableau-pipeline:sales", "tableau-pipeline-instance:here"})


def _remote(*tags: str) -> RemoteDatasource:
    return RemoteDatasource(
        luid="d",
        name="Sales",
        project_id="p",
        owner_id="u",
        created_at=_NOON,
        updated_at=_NOON,
        revision=1,
        megabytes=1,
        tags=frozenset(tags),
        link=None,
    )


def _whose(case: Case, *tags: str, is_ours: bool = True, candidates: int = 0) -> Refusal | None:
    remote = _remote(*tags)
    whose = Ownership.of(remote, _OURS, is_ours=is_ours, candidates=(remote,) * candidates)
    return whose.refusal(replace(case.pipeline.declaration, key="sales"), takeover=False)


@of(Code.SEVERAL_TAGGED)
def _(case: Case) -> Refusal | None:
    return _whose(case, *_OURS, candidates=2)


@of(Code.OTHER_ENVIRONMENT)
def _(case: Case) -> Refusal | None:
    return _whose(case, "tableau-pipeline:sales@Dev", "tableau-pipeline-instance:here@Dev")


@of(Code.OTHER_DEPLOYMENT)
def _(case: Case) -> Refusal | None:
    return _whose(case, "tableau-pipeline:sales", "tableau-pipeline-instance:there")


@of(Code.OTHER_KEY)
def _(case: Case) -> Refusal | None:
    return _whose(case, "tableau-pipeline:orders", "tableau-pipeline-instance:here")


@of(Code.NOT_PUBLISHED_HERE)
def _(case: Case) -> Refusal | None:
    return _whose(case, is_ours=False)


@of(Code.STRAY)
def _(case: Case) -> Refusal | None:
    return _whose(case, *_OURS, candidates=1)


@of(Code.NAME_TAKEN)
def _(case: Case) -> None:
    name = case.published().name
    case.pipeline.declare(name=f"{name} taken")
    other_users.publishes(case.pipeline, flights())
    case.pipeline.run()


@of(Code.DECLARATION)
def _(case: Case) -> None:
    (table,) = case.pipeline.declaration.tables
    fields = (FieldMetadata("no such column", caption="Delay"),)
    case.pipeline.declare(tables=(replace(table, fields=fields),))
    case.pipeline.run()


@of(Code.KEYS)
def _(case: Case) -> None:
    case.pipeline.policy(Diff(("flight_id",)))
    case.pipeline.model("flights", pa.concat_tables([flights(2), flights(2)]))
    case.pipeline.run()


@of(Code.MODEL)
def _(case: Case) -> None:
    case.pipeline.model("flights", flights(tags=pa.array([[1]] * 8, pa.list_(pa.int64()))))
    case.pipeline.run()


@of(Code.NO_SNAPSHOT)
def _(case: Case) -> None:
    case.pipeline.missing.add("flights")
    case.pipeline.run()


@of(Code.SNAPSHOT)
def _(case: Case) -> None:
    for manifest in (case.pipeline.folder / "snapshots").rglob("*.json"):
        manifest.write_text("{")
    case.pipeline.run()


@of(Code.LAKE)
def _(case: Case) -> None:
    lake = LakeTable(delta=str(case.folder / "nothing"))
    case.pipeline.declare(tables=(Table("flights", source=lake),))
    case.pipeline.run()


@of(Code.FILES)
def _(case: Case) -> None:
    matching_files(str(case.folder / "*.csv"))


@of(Code.BATCH)
def _(case: Case) -> None:
    all_of([])


@of(Code.TOO_LARGE)
def _(case: Case) -> None:
    block_size(10**13)


@of(Code.PUBLISHED_VERSION)
def _(case: Case) -> None:
    case.pipeline.run(metadata_only=True)


@of(Code.NO_VERSION)
def _(case: Case) -> None:
    rollback(case.pipeline.refresh(), Hold(by="ann", version=7))


@of(Code.NOT_PUBLISHED)
def _(case: Case) -> None:
    diff(case.pipeline.refresh(), case.pipeline.eyes, samples=1, tell=print)


@of(Code.SETTING)
def _(case: Case) -> None:
    limit_in_bytes("16m")


@of(Code.NOT_INSTALLED)
def _(case: Case) -> None:
    case.patch.setenv("PATH", "")
    _git(case.folder, "status")


@of(Code.PROJECT)
def _(case: Case) -> None:
    case.patch.chdir(case.folder)
    with open_project(None):
        pass


@of(Code.RECORD)
def _(case: Case) -> None:
    read_record("{}", repair="")


@of(Code.IN_USE)
def _(case: Case) -> None:
    _state(case.folder / "state.json", "Trials", resume=True)


@of(Code.CREDENTIALS)
def _(case: Case) -> None:
    replace(case.pipeline, user=("admin", "mistyped")).run()


@of(Code.NOT_ON_SITE)
def _(case: Case) -> None:
    case.pipeline.declare(project="Nowhere")
    case.pipeline.run()


@of(Code.NO_UPDATES)
def _(case: Case) -> None:
    answer = TSC.ServerResponseError("403004", "Forbidden", "You may not")
    error = update_refused(answer, "d", hide=str)
    assert error
    raise error


@of(Code.SERVER)
def _(case: Case) -> None:
    case.pipeline.eyes.download("00000000-0000-4000-8000-000000000000", case.folder)


ROWS = {row["code"]: row for row in page("troubleshooting.md").sections["Codes"].rows()}


@pytest.mark.parametrize("code", sorted(set(Code) - {Code.OTHER}))
def test_a_code(code: Code, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a refusal has a wrong code, is shown without its remedy, or is undocumented."""
    folder = tmp_path / "empty"
    folder.mkdir()
    refusals = refused(lambda: CASES[code](Case(pipeline, folder, monkeypatch)))
    assert {each.code for each in refusals} == {code}
    key, step = pipeline.declaration.key, "refresh_it"
    shown = {face: rendered(refusals, face, key=key, step=step) for face in Face}
    for each in refusals:
        assert each.text in shown[Face.LOG]
        assert f"- **{code}**: " in shown[Face.MARKDOWN]
        assert Refusal.of_json(each.as_json()) == each
    for accept in accepts_of(refusals):
        assert f"accept: [{accept}" in shown[Face.LAUNCHPAD]
        assert shown[Face.LAUNCHPAD].startswith(f"ops: {{{step}: ")
        assert shown[Face.COMMAND_LINE].startswith(f"tableau-pipeline refresh {key} --accept ")
        assert f"accept: [{accept}]" in ROWS[code]["what to do"]
    if not accepts_of(refusals):
        assert (shown[Face.LAUNCHPAD], shown[Face.COMMAND_LINE]) == ("", "")
    assert all(ROWS[code].values())


@pytest.mark.parametrize(
    ("code", "column", "details"),
    [
        (Code.ROWS_LOST, None, {"rows": 2, "published": 8}),
        (Code.ROWS_CHANGED, None, {"max_change": 0.5, "published": 8}),
        (Code.KEYS, "flight_id", {}),
        (Code.MODEL, "tags", {}),
    ],
)
def test_where_and_how_much(
    code: Code,
    column: str | None,
    details: Mapping[str, Any],
    pipeline: Pipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: programs have to parse a message to learn its table, column or numbers."""
    (refusal,) = refused(lambda: CASES[code](Case(pipeline, tmp_path, monkeypatch)))
    assert (refusal.table, refusal.column, refusal.details) == ("flights", column, details)
    if code is not Code.MODEL:
        assert refusal.text == f"{refusal.problem}. {refusal.remedy}"


def refused(produce: Callable[[], object]) -> Sequence[Refusal]:
    """Return the refusals that a function raises or returns."""
    try:
        found = produce()
    except RefusedError as error:
        return error.refusals
    assert isinstance(found, Refusal)
    return [found]


def test_no_code_is_left_out():
    """Prevents: no test produces a new code, or the documentation lists an old code."""
    assert CASES.keys() == set(Code) - {Code.OTHER}
    assert ROWS.keys() == {*map(str, CASES)}


def test_a_code_of_another_release():
    """Prevents: `status` fails on a refusal that a later release has recorded."""
    recorded = {"problem": "wrong", "code": "new", "accept": "newer", "check": "newest"}
    assert Refusal.of_json(recorded) == Refusal("wrong", Code.OTHER)

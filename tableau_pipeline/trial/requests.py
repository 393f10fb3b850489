"""Find out how a site behaves: each step sends a few requests that concern one data source."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any
from uuid import uuid4
from zipfile import ZipFile, is_zipfile

import defusedxml.ElementTree
import tableauserverclient as TSC

from tableau_pipeline.actions.batch import Batch, Delete, Insert, Upsert, source, target
from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.drift import LONGEST_LAG, Job, NoJob, RemoteDatasource
from tableau_pipeline.errors import BusyError, NoUpdatesError, RefreshError, RefusedError
from tableau_pipeline.metadata.merge import FieldPath
from tableau_pipeline.metadata.tds import Tds, pack
from tableau_pipeline.publishing import job_list, packages
from tableau_pipeline.publishing.packages import published_file
from tableau_pipeline.publishing.properties import permissions, set_properties
from tableau_pipeline.publishing.tsc_internals import RequestFactory
from tableau_pipeline.trial.workshop import TAG, Rows, Workshop

Steps = Sequence[tuple[str, Callable[[Workshop], None]]]

_ROWS: Rows = [(number, f"row {number}") for number in range(1, 9)]
# Seconds to wait for a new data source in lists, and for the time stamp of an update.
_LISTING_SECONDS, _STAMP_SECONDS = 60.0, 12.0
# The job types that we expect in the site's list of jobs.
_PUBLISH, _UPDATE = "publish_datasource", "update_uploaded_file"
# The ids of tables in a .tds: in the form of Tableau Desktop, and in another form.
_DESKTOP = re.compile(rb"Extract \(Extract\.Extract\)_[0-9A-Fa-f]{32}")
_PLAIN = re.compile(rb"\bExtract_[0-9A-Fa-f]{32}")
# Edits such as users make.
_EDITS: dict[FieldPath, str] = {
    ("field", "Extract", "name", "caption"): "Label",
    ("calculation", "Doubled", "formula"): "[id] * 2",
    ("calculation", "Doubled", "type"): "integer",
}
_NO_JOBS = "this user may not ask for jobs"


def _main_source(shop: Workshop) -> RemoteDatasource:
    """Return the main data source; publish it again if an earlier run of this trial deleted it."""
    if (remote := shop.find("site")) is None:
        job = shop.publish("site", shop.file({"Extract": _ROWS}))
        shop.took_effect(job, lambda: shop.appears("site"))
        remote = shop.found("site")
    return remote


def create(shop: Workshop) -> None:
    """Publish a data source; look for its job, and for the data source in the list."""
    since = shop.site.now().replace(microsecond=0)
    job = shop.publish("site", shop.file({"Extract": _ROWS}))
    listed = _find_listed(shop, job, since)
    effect = shop.took_effect(job, lambda: shop.find("site") is not None)
    if not effect and shop.jobs_seen[job] is not NoJob.GONE:
        raise RefreshError(f'Publishing "{shop.name("site")}" failed: {shop.jobs_seen[job]}')
    _answer_listed_at_once(shop, job)
    _answer_jobs(shop, job)
    listed = listed or _find_listed(shop, job, since)
    _answer_list(shop, job, listed, _PUBLISH, "kind-of-a-publish-in-the-list")
    remote = shop.found("site")
    _note_stamp(shop, job, remote)
    shop.as_assumed(
        "revision-of-each-publish",
        unless=None if remote.revision else "the site lists no revisions to this user",
    )


def _answer_listed_at_once(shop: Workshop, job: str) -> None:
    if shop.jobs_seen[job] is NoJob.HIDDEN:
        shop.unknown(f"{_NO_JOBS}, so it is not known when the publish ended", "listed-at-once")
        return
    began = monotonic()
    while shop.find("site") is None:
        if monotonic() - began > _LISTING_SECONDS:
            raise RefreshError(
                f'"{shop.name("site")}" is not listed after {_LISTING_SECONDS:.0f} s'
            )
        shop.sleep(0.25)
    seconds = monotonic() - began
    shop.update(listing=seconds)
    shop.as_assumed("listed-at-once", unless=f"it takes {seconds:.0f} s" if seconds >= 1 else None)


def _answer_jobs(shop: Workshop, job: str) -> None:
    site = shop.site
    may = site.may_read_jobs()
    shop.record.learn(reads_jobs={site.user_id: may})
    _answer_right(shop, "own-job-of-a-creator", "ask for their own job", may=may)
    if not may:
        shop.unknown(_NO_JOBS, "finished-job-is-kept")
        return
    is_gone = shop.jobs_seen[job] is NoJob.GONE or site.job(job) is NoJob.GONE
    shop.record.learn(loses_jobs=is_gone or None)
    shop.as_assumed("finished-job-is-kept", unless="it is gone at once" if is_gone else None)


def _answer_right(shop: Workshop, fact: str, what: str, *, may: bool) -> None:
    """Answer whether this user confirms the assumption that only administrators may do `what`."""
    is_admin = "Administrator" in shop.site.user()[1]
    role = "an administrator" if is_admin else "no administrator"
    answer = f"{role}, this user {'may' if may else 'may not'} {what}"
    shop.as_assumed(fact, unless=None if may == is_admin else answer)


def _find_listed(shop: Workshop, job: str, since: Any) -> Sequence[TSC.BackgroundJobItem] | None:
    """Return our job from the list; [] if the list lacks the job, None if we may not list jobs."""
    site = shop.site
    try:
        jobs = site.ask("Listing the jobs", partial(job_list.list_jobs, site.tsc, since))
    except RefreshError:
        return None
    return jobs if jobs is None else [item for item in jobs if str(item.id) == job]


def _answer_list(
    shop: Workshop,
    job: str,
    listed: Sequence[TSC.BackgroundJobItem] | None,
    word: str,
    fact: str,
) -> None:
    shop.record.learn(lists_jobs={shop.site.user_id: listed is not None})
    _answer_right(shop, "list-of-jobs", "list jobs", may=listed is not None)
    if not listed:
        reason = (
            "this user may not list jobs" if listed is None else "the list does not have the job"
        )
        shop.unknown(reason, "titles-in-the-list", fact)
        return
    (item,) = listed
    shop.record.learn(job_words={item.type: "publish" if word == _PUBLISH else "update"})
    shop.as_assumed(fact, unless=None if item.type == word else f"it is {item.type}")
    title = f'the title is "{item.title}"' if item.title else "jobs have no titles"
    own = shop.name("site")
    shop.as_assumed("titles-in-the-list", unless=None if item.title == own else title)


def _note_stamp(shop: Workshop, job: str, remote: RemoteDatasource) -> None:
    """Note by how many seconds the time stamp of a data source follows the end of its job."""
    seen = shop.jobs_seen.get(job)
    if isinstance(seen, Job) and seen.completed_at:
        late = max((remote.updated_at - seen.completed_at).total_seconds(), 0.0)
        shop.update(lags=(*shop.state.lags, late))


def describing(shop: Workshop) -> None:
    """Tag and describe the data source, and read its properties."""
    site, remote = shop.site, _main_source(shop)
    luid = remote.luid
    shop.pass_a_second()
    site.tag(luid, [TAG])
    after = site.find_by_luid(luid) or remote
    moved = after.updated_at != remote.updated_at
    shop.as_assumed("tags-leave-the-stamp", unless="it moves updatedAt" if moved else None)
    shop.pass_a_second()
    text = "A trial.\nIt is removed soon."
    set_properties(site, luid, description=text)
    described = site.find_by_luid(luid) or after
    stays = described.updated_at == after.updated_at
    shop.as_assumed("description-moves-the-stamp", unless="it stays" if stays else None)
    is_kept = described.description == text
    shop.as_assumed(
        "description-is-kept", unless=None if is_kept else f"it is {described.description!r}"
    )
    try:
        permissions(site, luid)
        shop.as_assumed("permissions")
    except RefreshError as error:
        shop.as_assumed("permissions", unless=str(error))
    _answer_warnings(shop, luid)


def _answer_warnings(shop: Workshop, luid: str) -> None:
    tsc, fact = shop.site.tsc, "warnings-of-an-asset-without-one"
    url = f"{tsc.baseurl}/sites/{tsc.site_id}/dataQualityWarnings/datasource/{luid}"
    code = _code_of(shop, "Reading data quality warnings", lambda: tsc.datasources.get_request(url))
    if code in ("", "404030"):
        shop.as_assumed(fact, unless=None if code else "the list is empty")
    else:
        shop.unknown(f"the site refuses to list warnings ({code})", fact)


def _code_of(shop: Workshop, doing: str, call: Callable[[], object]) -> str:
    """Return the code by which the server refuses a call; "" if the server accepts the call."""

    def asked() -> str:
        try:
            call()
        except TSC.ServerResponseError as error:
            return str(error.code)
        return ""

    return shop.site.ask(doing, asked)


def downloads(shop: Workshop) -> None:
    """Download the data source with its rows and without them, and let the site count the rows."""
    site, remote = shop.site, _main_source(shop)
    with TemporaryDirectory() as folder:
        without = _save_content(shop, remote.luid, Path(folder) / "without", extract=False)
        if is_package := is_zipfile(without):
            with ZipFile(without) as package:
                has_data = any(name.endswith(".hyper") for name in package.namelist())
            otherwise = "it has the data" if has_data else None
            shop.as_assumed("data-without-the-extract", unless=otherwise)
        shop.as_assumed(
            "download-without-the-extract", unless=None if is_package else "a .tds comes"
        )
    shop.unknown("a .tds comes", "data-without-the-extract")
    tds = site.metadata(remote.luid).tds
    if _DESKTOP.search(tds):
        shop.as_assumed("identifiers-by-desktop")
    elif identifier := _PLAIN.search(tds):
        shop.as_assumed("identifiers-by-desktop", unless=f"it is like {identifier[0].decode()}")
    else:
        shop.unknown("the .tds names no table in such a way", "identifiers-by-desktop")
    try:
        counted = site.count(remote.luid, {"Extract": "id"})["Extract"]
        is_right = counted == len(_ROWS)
        otherwise = f"it counts {counted} where there are {len(_ROWS)}"
        shop.as_assumed("count-of-rows", unless=None if is_right else otherwise)
    except RefreshError as error:
        shop.as_assumed("count-of-rows", unless=str(error))


def _save_content(shop: Workshop, luid: str, file: Path, *, extract: bool) -> Path:
    def save() -> Path:
        with packages.open_content(shop.site.tsc, luid, limit=10**8, extract=extract) as answer:
            return packages.save_content(answer, file)

    return shop.site.ask("Downloading a data source", save)


def update(shop: Workshop) -> None:
    """Change rows by one update; look at the time stamp, the revision and the job."""
    site, before = shop.site, _main_source(shop)
    changed = [(1, "changed"), *_ROWS[2:], (9, "row 9")]
    batch = Batch(
        [
            Delete(target="Extract", where=target("id") == 2),
            Upsert(target="Extract", source="changed", where=target("id") == source("id")),
            Insert(target="Extract", source="new"),
        ]
    )
    file = shop.file({"changed": [(1, "changed")], "new": [(9, "row 9")]})
    shop.pass_a_second()
    since = site.now().replace(microsecond=0)
    try:
        job = _send(shop, before, batch, upload=shop.upload(file))
    except (NoUpdatesError, RefusedError) as error:
        shop.as_assumed("update-by-the-owner", unless=str(error))
        shop.unknown("updates are refused", *_UPDATE_FACTS)
        return
    listed = _find_listed(shop, job, since)
    effect = shop.took_effect(job, lambda: shop.rows(before) == {"Extract": changed})
    if not effect:
        seen = shop.jobs_seen[job]
        notes = f"its job fails: {seen.notes}" if isinstance(seen, Job) else "it shows no effect"
        shop.as_assumed("update-by-the-owner", unless=notes)
        shop.unknown("no update has worked", *_UPDATE_FACTS)
        return
    shop.as_assumed("update-by-the-owner")
    listed = listed or _find_listed(shop, job, since)
    _answer_list(shop, job, listed, _UPDATE, "kind-of-an-update-in-the-list")
    _answer_stamp(shop, job, before)


_UPDATE_FACTS = (
    "update-moves-the-stamp",
    "update-makes-no-revision",
    "repeated-request-while-its-job-waits",
    "second-update",
    "repeated-request-is-answered-alike",
    "repeated-request-changes-nothing",
    "failed-update",
    "kind-of-an-update-in-the-list",
)


def _send(
    shop: Workshop, to: RemoteDatasource, batch: Batch, *, upload: str | None = None, key: str = ""
) -> str:
    job = shop.site.update(
        to.luid, batch=batch.json(), upload=upload, request_id=key or str(uuid4())
    )
    if job is None:
        raise RefreshError("the site took an update, and named no job")
    return shop.opened(job)


def _answer_stamp(shop: Workshop, job: str, before: RemoteDatasource) -> None:
    """Answer whether the update changed the time stamp, at once or later, and made a revision."""
    site, began = shop.site, shop.site.now()
    after = site.find_by_luid(before.luid) or before
    is_at_once = after.updated_at != before.updated_at
    while after.updated_at == before.updated_at:
        if (site.now() - began).total_seconds() > _STAMP_SECONDS:
            break
        shop.sleep(0.25)
        after = site.find_by_luid(before.luid) or before
    moved = after.updated_at != before.updated_at
    if moved:
        _note_stamp(shop, job, after)
    late = "it moves some seconds later" if moved else "it never moves"
    shop.as_assumed("update-moves-the-stamp", unless=None if is_at_once else late)
    shop.record.learn(updates_move_stamp=moved)
    if before.revision is None or after.revision is None:
        shop.unknown("the site lists no revisions to this user", "update-makes-no-revision")
        return
    made = after.revision - before.revision
    shop.record.learn(update_revisions=min(made, 1))
    shop.as_assumed("update-makes-no-revision", unless=f"it makes {made}" if made else None)


def requests(shop: Workshop) -> None:
    """Send an update twice, another update at the same time, and an update that fails."""
    remote = _main_source(shop)
    if not shop.is_as_assumed("update-by-the-owner"):
        return
    key = str(uuid4())
    first = _send(shop, remote, _delete(3), key=key)
    _answer_repeated(shop, remote, first, key)
    second = _answer_second(shop, remote, first)
    shop.took_effect(first, lambda: _lacks(shop, remote, 3))
    if second:
        shop.took_effect(second, lambda: _lacks(shop, remote, 4))
    # If the server recognizes the RequestID, it ignores this request. Otherwise, it deletes row 5.
    again, answer = None, "it is refused as another update"
    with suppress(BusyError):
        again = shop.site.update(remote.luid, batch=_delete(5).json(), upload=None, request_id=key)
        answer = "it is answered with another job" if again else "it is answered without a job"
    shop.as_assumed("repeated-request-is-answered-alike", unless=None if again == first else answer)
    if again and again != first:
        shop.took_effect(shop.opened(again), lambda: _lacks(shop, remote, 5))
    is_ignored = not _lacks(shop, remote, 5)
    shop.as_assumed(
        "repeated-request-changes-nothing",
        unless=None if is_ignored else "it is carried out again",
    )
    _answer_failed(shop, remote)


def _delete(number: int) -> Batch:
    """Return a batch that deletes one row."""
    return Batch([Delete(target="Extract", where=target("id") == number)])


def _lacks(shop: Workshop, remote: RemoteDatasource, number: int) -> bool:
    rows = shop.rows(remote)["Extract"]
    return number not in {row_number for row_number, _ in rows}


def _is_unfinished(shop: Workshop, job: str) -> bool | None:
    """Whether a job has not ended yet; None if the site hides the job."""
    status = shop.site.job(job)
    return status.outcome is None if isinstance(status, Job) else None


def _answer_repeated(shop: Workshop, remote: RemoteDatasource, first: str, key: str) -> None:
    fact = "repeated-request-while-its-job-waits"
    try:
        again = shop.site.update(remote.luid, batch=_delete(3).json(), upload=None, request_id=key)
        answer = None if again == first else "it is answered without a job"
        answer = "it is answered with another job" if again not in (None, first) else answer
    except BusyError:
        again, answer = None, "it is refused as another update"
    waits = _is_unfinished(shop, first)
    if waits or (answer and "another" in answer):
        shop.as_assumed(fact, unless=answer)
    else:
        shop.unknown(_NO_JOBS if waits is None else "the first job had ended already", fact)


def _answer_second(shop: Workshop, remote: RemoteDatasource, first: str) -> str | None:
    """Send another update; return its job if the site accepts it."""
    fact = "second-update"
    try:
        second = _send(shop, remote, _delete(4))
    except BusyError:
        shop.as_assumed(fact)
        return None
    if waits := _is_unfinished(shop, first):
        shop.as_assumed(fact, unless="it is queued")
    else:
        shop.unknown(_NO_JOBS if waits is None else "the first job had ended already", fact)
    return second


def _answer_failed(shop: Workshop, remote: RemoteDatasource) -> None:
    """Send an update that cannot succeed."""
    fact = "failed-update"
    batch = Batch([Delete(target="No such table", where=target("id") == 1)])
    try:
        job = _send(shop, remote, batch)
    except RefusedError as error:
        shop.as_assumed(fact, unless=f"the request is refused: {error}")
        return
    if shop.took_effect(job, lambda: False) is None:
        shop.unknown(_NO_JOBS, fact)
        return
    tsc = shop.site.tsc
    with suppress(RefreshError):
        body = shop.site.ask(
            "Asking for a job", lambda: tsc.jobs.get_request(f"{tsc.jobs.baseurl}/{job}").content
        )
        element = next(defusedxml.ElementTree.fromstring(body, forbid_dtd=True).iterfind("{*}job"))
        code = element.get("finishCode")
        shop.as_assumed(
            fact, unless=None if code == "1" else f"it has the finishCode {code}, and a note"
        )
    shop.unknown("the site no longer shows the job", fact)


def replacing(shop: Workshop) -> None:
    """Publish a package with edits like a user's, then replace the rows by the mode Replace."""
    before = _main_source(shop)
    if problem := add_edits(shop, "site", before):
        shop.as_assumed("published-package", unless=problem)
        shop.unknown("no package could be published", *_PACKAGE_FACTS)
        return
    shop.as_assumed("published-package")
    after = shop.found("site")
    is_same = after.luid == before.luid
    shop.as_assumed("overwrite-keeps-the-luid", unless=None if is_same else "it is another one")
    has_tag = TAG in after.tags
    shop.as_assumed("overwrite-keeps-tags", unless=None if has_tag else "they are gone")
    _answer_replace(shop, after)


_PACKAGE_FACTS = ("overwrite-keeps-the-luid", "overwrite-keeps-tags", "replace-keeps-the-model")


def add_edits(shop: Workshop, kind: str, remote: RemoteDatasource) -> str | None:
    """Publish a data source again with a new field and caption, like a user of Desktop.

    Returns:
        why the publish failed; None if it succeeded.
    """
    tables = {"Extract": [("id", "BIGINT"), ("name", "TEXT")]}
    with TemporaryDirectory() as folder:
        package = Path(folder) / "work.tdsx"
        with published_file(shop.site, remote) as file:
            tds = Tds(shop.site.metadata(remote.luid).tds)
            pack(tds.edited(_EDITS, tables), file, package)
        shop.pass_a_second()
        try:
            job = shop.publish(kind, package, PublishMode.OVERWRITE)
        except RefusedError as error:
            return str(error)
    if not shop.took_effect(job, lambda: has_edits(shop, remote.luid)):
        return "its job fails, or never shows"
    _note_stamp(shop, job, shop.found(kind))
    return None


def has_edits(shop: Workshop, luid: str) -> bool:
    """Whether a data source has the edits of `add_edits`."""
    return Tds(shop.site.metadata(luid).tds).values(_EDITS).items() >= _EDITS.items()


def _answer_replace(shop: Workshop, remote: RemoteDatasource) -> None:
    fact, site = "replace-keeps-the-model", shop.site
    if not site.knows_replace:
        shop.unknown(f"version {site.tsc.version} of the REST API has no Replace", fact)
        return
    rows = [(21, "row 21"), (22, "row 22")]
    problem: str | None = None
    try:
        job = shop.publish("site", shop.file({"Extract": rows}), PublishMode.REPLACE)
    except RefusedError as error:
        problem = str(error)
    else:
        effect = shop.took_effect(job, lambda: shop.rows(remote) == {"Extract": rows})
        if effect is None:
            shop.unknown(f"{_NO_JOBS}, and the publish has shown no effect", fact)
            return
        if not effect:
            problem = "its job fails, or shows no effect"
        elif not has_edits(shop, remote.luid):
            problem = "it drops them, as Overwrite does"
    shop.as_assumed(fact, unless=problem)
    shop.record.learn(replaces=problem is None)


def taken_name(shop: Workshop) -> None:
    """Publish under the name of another data source."""
    fact, remote = "taken-name-as-a-job", _main_source(shop)
    before = shop.rows(remote)
    try:
        job = shop.publish("site", shop.file({"Extract": [(31, "row 31")]}))
    except RefusedError as error:
        shop.as_assumed(fact, unless=f"the request is refused: {error}")
        return
    effect = shop.took_effect(job, lambda: shop.rows(remote) != before)
    if effect is None:
        shop.unknown(f"{_NO_JOBS}, and the publish has shown no effect", fact)
    else:
        shop.as_assumed(fact, unless="it succeeds" if effect else None)


def several_tables(shop: Workshop) -> None:
    """Publish a `.hyper` file of two tables, without a `.tds`."""
    fact = "two-related-tables"
    file = shop.file({"orders": _ROWS, "people": _ROWS}, related=True)
    problem: str | None = None
    try:
        job = shop.publish("two tables", file)
    except RefusedError as error:
        problem = f"the request is refused: {error}"
    else:
        effect = shop.took_effect(job, lambda: shop.appears("two tables"))
        if effect is None:
            shop.unknown(f"{_NO_JOBS}, and the publish has shown no effect", fact)
            return
        if not effect:
            problem = "its job fails, or shows no effect"
        else:
            remote = shop.found("two tables")
            shop.site.tag(remote.luid, [TAG])
            tables = {table for table, _ in shop.site.metadata(remote.luid).columns or ()}
            problem = None if len(tables) == 2 else f"it has {len(tables)} tables"
    shop.as_assumed(fact, unless=problem)
    shop.record.learn(takes_bare_stars=problem is None)


def blocks(shop: Workshop) -> None:
    """Upload two blocks, with the second block first; publish the file, and read the rows back."""
    fact, site = "blocks-out-of-order", shop.site
    file = shop.file({"Extract": _ROWS})
    content, endpoint = file.read_bytes(), site.tsc.fileuploads
    file.unlink()
    half = len(content) // 2
    try:
        upload = site.ask("Beginning an upload", endpoint.initiate)
        for number, block in ((2, content[half:]), (1, content[:half])):
            request, kind = RequestFactory.Fileupload.chunk_req(block)
            url = f"{endpoint.baseurl}/{upload}?sequenceID={number}"
            site.ask("Uploading a block", partial(endpoint.put_request, url, request, kind))
        job = shop.opened(
            site.publish(
                upload,
                name=shop.name("blocks"),
                project_id=shop.project_id,
                mode=PublishMode.CREATE,
            )
        )
    except RefusedError as error:
        shop.as_assumed(fact, unless=str(error))
        shop.record.learn(orders_blocks=False)
        return
    effect = shop.took_effect(job, lambda: shop.appears("blocks"))
    if effect is None:
        shop.unknown(f"{_NO_JOBS}, and the publish has shown no effect", fact)
        return
    is_right = effect and shop.rows(shop.found("blocks")) == {"Extract": list(_ROWS)}
    shop.as_assumed(fact, unless=None if is_right else "the file is damaged then")
    shop.record.learn(orders_blocks=is_right)


def deletion(shop: Workshop) -> None:
    """Delete a data source, and check whether it is still listed."""
    shop.site.delete(_main_source(shop).luid)
    is_listed = shop.find("site") is not None
    shop.as_assumed("deleted-at-once", unless="it is still listed" if is_listed else None)


def stamp_lag(shop: Workshop) -> None:
    """Answer how many seconds, at most, a time stamp came after the end of its job."""
    fact = "stamp-of-a-job"
    if not shop.state.lags:
        shop.unknown("no job was seen to end", fact)
        return
    # The site causes the whole lag, because only this trial changes the data source.
    lag = min(max(shop.state.lags), LONGEST_LAG)
    shop.as_assumed(fact, unless=f"it follows by {lag:.0f} s" if lag >= 1 else None)
    shop.record.learn(stamp_lag=lag)


STEPS: Steps = (
    ("create", create),
    ("describe", describing),
    ("download", downloads),
    ("update", update),
    ("send again", requests),
    ("replace", replacing),
    ("take a taken name", taken_name),
    ("publish two tables", several_tables),
    ("upload out of order", blocks),
    ("delete", deletion),
    ("compare time stamps", stamp_lag),
)

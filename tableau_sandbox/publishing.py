"""Publish data sources: who may publish, and what a publish changes."""

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tableau_sandbox.access import WRITE, check_may, give_datasource_rules
from tableau_sandbox.content.hyper_file import NotAppendableError, append_rows
from tableau_sandbox.content.served import served_path, served_tds
from tableau_sandbox.content.uploaded import HYPER, Content, appended_file
from tableau_sandbox.errors import not_found, refusal
from tableau_sandbox.identity import new_luid
from tableau_sandbox.services import Services
from tableau_sandbox.store import datasources
from tableau_sandbox.store.records import Datasource, Project, Site, User

CREATE_NEW = "createnew"
OVERWRITE = "overwrite"
REPLACE = "replace"
APPEND = "append"
_NEEDS_TARGET = (REPLACE, APPEND)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A request to publish. JSON can represent all values, so that a job can store them.

    Attributes:
        mode: one of the modes above.
        file_type: the suffix of the uploaded file.
        description: None keeps the description of an earlier publish.
    """

    site: str
    project: str
    user: str
    name: str
    mode: str
    file_type: str
    description: str | None
    use_remote_query_agent: bool


def target_of(services: Services, publication: Publication) -> Datasource | None:
    """Return the project's data source of this name, even if the user may not change it."""
    return services.database.named(Datasource, publication.name, project=publication.project)


def find_target(
    services: Services, publication: Publication, *, as_job: bool = False
) -> Datasource | None:
    """Find the data source that a publication would change; None if the publication creates one.

    Args:
        as_job: whether the request only queues a job. With the option `taken_name` set to "in-job",
            such a request may use a taken name, because the job itself fails later.

    Raises:
        RestError: 404005, 404004 or 403007: the project or the data source does not exist, the name
            is taken, or the user lacks the rights.
    """
    database = services.database
    place = publication.project
    project = services.known(Project, place, site=publication.site, code="404005")
    user = database.find(User, luid=publication.user)
    if user is None:
        raise refusal("403007", "The user is not allowed to publish data sources.")
    check_may(database, WRITE, user=user, thing=project, code="403007")
    target = target_of(services, publication)
    if target is None and publication.mode in _NEEDS_TARGET:
        raise not_found("Datasource", publication.name, code="404004")
    if target is not None and publication.mode == CREATE_NEW:
        if as_job and services.options.taken_name == "in-job":
            return target
        raise refusal(
            "403007",
            f"The datasource '{target.name}' already exists and may not be overwritten without the"
            " 'overwrite' flag set to 'true'.",
        )
    if target is not None:
        check_may(database, WRITE, user=user, thing=target, code="403007")
    return target


def has_too_many_tables(services: Services, publication: Publication, content: Content) -> bool:
    """Whether a bare file has several tables although the option `several_tables` refuses them."""
    is_bare = publication.file_type == HYPER
    refuses = services.options.several_tables == "refused"
    return is_bare and refuses and len(content.hyper.tables) > 1


@dataclass(frozen=True)
class Prepared:
    """A publication with prepared files.

    Attributes:
        publication: the request.
        content: the content that the data source will have.
        appended_to: the published file whose rows are part of the content; None if the publication
            appends no rows.
    """

    publication: Publication
    content: Content
    appended_to: str | None = None


def prepare(services: Services, publication: Publication, content: Content) -> Prepared:
    """Prepare the files of a publication; this may take long, but does not lock the database.

    The caller must hold `services.publishing` until the commit, so that no other publish gets lost.

    Raises:
        RestError: as for `find_target`; 400011 if the rows cannot be appended, or if there are no
            data to replace.
    """
    target = find_target(services, publication)
    _check_have_data(publication, target, content)
    rows = content.hyper_path
    if target is None or publication.mode != APPEND or rows is None:
        return Prepared(publication, content)
    return Prepared(publication, _appended(services, target, content, rows=rows), target.hyper_file)


def commit(services: Services, prepared: Prepared) -> Datasource:
    """Publish the content as the data source, inside the transaction of the caller.

    Raises:
        RestError: as for `find_target`, because others may have changed things since `prepare`.
            Also 400011 if there are no data to replace, or if the name no longer belongs to the
            data source with the appended rows.
    """
    database, publication, content = services.database, prepared.publication, prepared.content
    target = find_target(services, publication)
    _check_have_data(publication, target, content)
    if target and prepared.appended_to not in (None, target.hyper_file):
        raise refusal("400011", f"The datasource '{target.name}' was moved meanwhile.")
    saved = _changed(services, target, publication, content)
    if target is not None:
        services.remember(target)
    database.save("datasource", vars(saved))
    if target is None:
        give_datasource_rules(database, saved)
    database.delete("connection_settings", datasource=saved.luid)
    datasources.add_revision(
        database,
        saved,
        publisher=publication.user,
        published_at=saved.updated_at,
        keep=services.options.kept_revisions,
    )
    # Read the record again: the names of the project and the owner come from other tables.
    (stored,) = database.all(Datasource, luid=saved.luid)
    return stored


def _changed(
    services: Services, target: Datasource | None, publication: Publication, content: Content
) -> Datasource:
    """Move the file to its permanent folder, and return the data source with the new content."""
    file, size = "", 0
    if content.hyper_path is not None:
        size = content.hyper_path.stat().st_size
        # If the transaction fails, no row names this file, and the next sweep removes the file.
        file = services.files.keep(content.hyper_path, services.files.content, suffix=".hyper")
    site = services.known(Site, publication.site, code="404000")
    published = (
        _republished(services, target, publication) if target else _new(services, publication)
    )
    changed = replace(
        published,
        hyper_file=file,
        hyper_bytes=size,
        tables=json.dumps(asdict(content.hyper)["tables"]),
    )
    if target is not None and _keeps_metadata(services, publication):
        return changed
    return replace(
        changed,
        packaged_path=served_path(content.packaged_path),
        tds=served_tds(
            content.tds,
            packaged_path=content.packaged_path,
            content_url=published.content_url,
            site=site.content_url,
        ),
        connection_class=content.facts.connection_class,
        has_extracts=content.facts.has_extract,
    )


def _keeps_metadata(services: Services, publication: Publication) -> bool:
    if publication.mode == REPLACE:
        return services.options.replace != "like-overwrite"
    return publication.mode == APPEND


def _check_have_data(publication: Publication, target: Datasource | None, content: Content) -> None:
    if target is None or publication.mode not in _NEEDS_TARGET:
        return
    if content.hyper_path is None or not target.hyper_file:
        whose = "published data source" if content.hyper_path else "file"
        raise refusal(
            "400011",
            f"There was a problem publishing the file '{target.name}'. The {whose} has no data of"
            " its own.",
        )


def _appended(services: Services, target: Datasource, content: Content, *, rows: Path) -> Content:
    result = appended_file(rows)
    stored = services.files.content / target.hyper_file
    try:
        hyper = append_rows(stored, rows, result=result)
    except (NotAppendableError, FileNotFoundError) as error:
        if not stored.exists():
            raise not_found("Datasource", target.name, code="404004") from error
        detail = f"There was a problem publishing the file '{target.name}'. {error}"
        raise refusal("400011", detail) from error
    return replace(content, hyper_path=result, hyper=hyper)


def _republished(services: Services, target: Datasource, publication: Publication) -> Datasource:
    description = publication.description
    return replace(
        target,
        owner=publication.user if services.options.publisher_owns else target.owner,
        description=target.description if description is None else description,
        use_remote_query_agent=publication.use_remote_query_agent,
        updated_at=services.stamp_of_change(target.updated_at),
        revision=target.revision + 1,
    )


def _new(services: Services, publication: Publication) -> Datasource:
    now = services.now()
    return Datasource(
        luid=new_luid(),
        site=publication.site,
        project=publication.project,
        owner=publication.user,
        connection=new_luid(),
        name=publication.name,
        content_url=_content_url(services, publication),
        description=publication.description or "",
        use_remote_query_agent=publication.use_remote_query_agent,
        created_at=now,
        updated_at=now,
    )


def _content_url(services: Services, publication: Publication) -> str:
    """Return the name without spaces and punctuation; add a time stamp if that name is taken."""
    plain = re.sub(r"[^\w-]", "", publication.name) or "datasource"
    url, mark = plain, int(services.now_seconds() * 1000)
    while services.database.find(Datasource, site=publication.site, content_url=url):
        url, mark = f"{plain}_{mark}", mark + 1
    return url

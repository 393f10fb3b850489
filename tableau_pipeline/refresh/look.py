"""What the server holds: our records, settled, beside what the server tells."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from tableau_pipeline.core.checkpoint import State
from tableau_pipeline.core.declaration import TAG_PREFIX, Declaration
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import RemoteDatasource, Server
from tableau_pipeline.core.snapshot import MANIFEST
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import View
from tableau_pipeline.refresh.settle import Settled, Settling, explained


def look(
    declaration: Declaration,
    journal: Journal,
    server: Server,
    *,
    project_id: str | None,
    timeout: float,
    resend: bool,
    log: logging.Logger,
) -> View:
    """Settle what is open, then find the data source.

    Args:
        timeout: seconds to wait for a job of an earlier refresh.
        resend: send again what the server may not have received.

    Raises:
        RefreshError: a job of an earlier refresh still runs after `timeout` seconds.
    """
    state = journal.state()
    why = journal.why_no_state() if state is None else _why_not_valid(state, declaration, server)
    known = None if why else state
    settling = Settling(
        name=declaration.name,
        project=declaration.project,
        journal=journal,
        server=server,
        timeout=timeout,
        log=log,
        resend=resend,
    )
    settled = settling.settle(known)
    remote = server.find_by_luid(settled.luid) if settled.luid else None
    if remote:
        _warn_if_moved(remote, declaration, project_id, log)
        view = View(bases=settled.bases, why_no_base="", remote=remote, named_by_us=True)
    else:
        view = _by_name(declaration, server, project_id, settled=settled, why=why)
    if not view.remote or not view.bases:
        return view
    return replace(
        view,
        bases=explained(settled, view.remote.updated_at),
        metadata=server.metadata_digest(view.remote.luid),
        trouble=settled.trouble,
        gone=_gone(view.bases),
    )


def _gone(bases: Sequence[State]) -> frozenset[str]:
    """The tables of which a published snapshot is no longer there."""
    return frozenset(
        name
        for base in bases
        for name, table in base.tables.items()
        if not all((folder / MANIFEST).exists() for folder in table.folders)
    )


def _by_name(
    declaration: Declaration,
    server: Server,
    project_id: str | None,
    *,
    settled: Settled,
    why: str | None,
) -> View:
    """Our records name no data source that we can read: is there one of its name?"""
    luid = settled.luid
    remote = server.find_by_name(declaration.name, project_id=project_id) if project_id else None
    if remote is None:
        return View(
            bases=settled.bases,
            why_no_base=why or "nothing of it is on the server yet",
            remote=None,
            named_by_us=False,
        )
    if remote.luid == luid:
        raise RefusedError(
            f'The data source "{declaration.name}" ({luid}) is on the server, but this user may '
            "not read it. Give the user its ownership, or View and Overwrite on it."
        )
    # A create that was cut off leaves a data source without our tag: its owner tells it is ours.
    if settled.creating and _may_be_ours(declaration, remote, server):
        return View(bases=settled.bases, why_no_base="", remote=remote, named_by_us=True)
    if luid:
        why = f"the data source of the last refresh ({luid}) is gone, and another has its name"
    return View(
        bases=(), why_no_base=why or "no state is recorded", remote=remote, named_by_us=False
    )


def _may_be_ours(declaration: Declaration, remote: RemoteDatasource, server: Server) -> bool:
    others = {tag for tag in remote.tags if tag.startswith(TAG_PREFIX)} - {declaration.tag}
    return remote.owner_id == server.user_id and not others


def _why_not_valid(state: State, declaration: Declaration, server: Server) -> str | None:
    if (state.server, state.site) != (server.url, server.site):
        return f'the last refresh went to {state.server}, site "{state.site}"'
    if (state.project, state.name) != (declaration.project, declaration.name):
        return f'the last refresh published "{state.name}" in project "{state.project}"'
    return None


def _warn_if_moved(
    remote: RemoteDatasource,
    declaration: Declaration,
    project_id: str | None,
    log: logging.Logger,
) -> None:
    if remote.name != declaration.name:
        log.warning('Somebody renamed "%s" to "%s" on the server', declaration.name, remote.name)
    if remote.project_id != project_id:
        log.warning('Somebody moved "%s" out of "%s"', remote.name, declaration.project)

"""What a refresh will do, decided before anything is built or sent. Nothing here has effects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tableau_pipeline.core.checkpoint import PublishMode, State
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import Check
from tableau_pipeline.refresh.guards import guard_problems
from tableau_pipeline.refresh.schema_change import schema_changes, schema_problems


class Accept(StrEnum):
    """What a run may let through once although it would be refused."""

    SHRINK = "shrink"
    SCHEMA = "schema"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class NoChange:
    """The data source already holds what it should."""

    reason: str

    @property
    def decision(self) -> str:
        """In a few words."""
        return "no change"


@dataclass(frozen=True, slots=True)
class Update:
    """Send the tables that change; each with the reason to ship it whole, if there is one.

    Attributes:
        pieces: in how many consecutive updates.
    """

    tables: Mapping[str, str | None]
    reason: str
    pieces: int = 1

    @property
    def decision(self) -> str:
        """In a few words."""
        return "update"


@dataclass(frozen=True, slots=True)
class Publish:
    """Send the whole file.

    Attributes:
        small_as_update: a file below the limit for payloads may go as one update that replaces all
            tables, which spares the metadata for certain.
    """

    mode: PublishMode
    reason: str
    small_as_update: bool = False

    @property
    def decision(self) -> str:
        """In a few words."""
        return f"publish ({self.mode})"


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do nothing; `reason` names what is wrong and what to decide.

    Attributes:
        failed: what each check that failed has found.
    """

    reason: str
    failed: Mapping[Check, str] = field(default_factory=dict)

    @property
    def decision(self) -> str:
        """In a few words."""
        return "refuse"


Plan = NoChange | Update | Publish | Refuse


@dataclass(frozen=True, slots=True)
class View:
    """What the server holds, as far as we can tell.

    Attributes:
        bases: what the data source may hold, by our own records; several after a crash, newest
            last; none when we know nothing.
        why_no_base: why there is none.
        remote: the data source, found by the LUID of our records or by name.
        named_by_us: our records name this very data source, or we were just creating it.
        metadata: the digest of its metadata now; None when it was not asked for.
        gone: tables of which a snapshot that may be published is gone, so that none can be
            compared with it.
        trouble: why no update may build on what is published, although it is ours.
    """

    bases: Sequence[State]
    why_no_base: str
    remote: RemoteDatasource | None
    named_by_us: bool
    metadata: str | None = None
    gone: frozenset[str] = frozenset()
    trouble: str | None = None

    @property
    def edited(self) -> bool:
        """Whether the metadata may hold work of others: it is not what we left."""
        return self.metadata not in {base.metadata for base in self.bases}

    @property
    def our_metadata(self) -> str | None:
        """The digest of what we left, as far as that is known."""
        if self.metadata and not self.edited:
            return self.metadata
        return self.bases[-1].metadata if self.bases else None


@dataclass(frozen=True, slots=True)
class Options:
    """The run config of a refresh."""

    dry_run: bool = False
    publish: bool = True
    full: bool = False
    accept: frozenset[Accept] = field(default_factory=frozenset)


def plan(declaration: Declaration, desired: State, view: View, options: Options) -> Plan:
    """Decide what makes the data source hold `desired`."""
    if refusal := _refusal(declaration, desired, view, options):
        return refusal
    base = view.bases[-1] if view.bases else None
    remote = view.remote
    if remote is None:
        if base and base.luid:
            return Publish(
                PublishMode.CREATE,
                f"the data source {base.luid} is gone from the server: published anew",
            )
        return Publish(PublishMode.CREATE, f"first publish: {view.why_no_base}")
    if base is None:
        return _without_base(declaration, view, remote, options)
    if _needs_new_metadata(desired, view):
        changes = [*_all_changes(desired, view), "the declaration changed"]
        return Publish(PublishMode.OVERWRITE, f"in full: {changes[0]}")
    if options.full and Accept.OVERWRITE in options.accept:
        return Publish(PublishMode.OVERWRITE, "in full, as asked (full: true, accept: overwrite)")
    if publish := _only_by_a_file(desired, view) or _why_not_known(view, remote, options):
        return publish
    changed = [
        name
        for name, table in desired.tables.items()
        if not all(table.same_content(base.tables[name]) for base in view.bases)
    ]
    if not changed:
        return NoChange("every table's fingerprint equals that of the last refresh")
    return _ship(declaration, changed, view)


def _refusal(
    declaration: Declaration, desired: State, view: View, options: Options
) -> Refuse | None:
    """Every reason to do nothing, in the order in which a person would want to know."""
    remote = view.remote
    if remote and not _is_ours(declaration, view, remote) and not declaration.adopt:
        return Refuse(
            f'A data source "{remote.name}" exists in project "{declaration.project}" that '
            "this pipeline did not publish. It is left alone: choose another name, or set "
            "adopt: true to take it over, which replaces its data and metadata."
        )
    base = view.bases[-1] if view.bases else None
    guards = guard_problems(
        declaration, desired.tables, view.bases, accept_shrink=Accept.SHRINK in options.accept
    )
    schema: list[str] = []
    problems = guards
    if base and remote:
        if Accept.SCHEMA not in options.accept:
            schema = schema_problems(desired, base, declaration.on_schema_change)
        problems = guards + schema
        if not problems and _drops_edits(desired, view, options):
            problems.append(
                f'"{remote.name}" must be overwritten, because '
                f"{', '.join(_all_changes(desired, view)) or 'its declaration changed'}, but "
                f"{_why_edited(view)}: somebody may have edited calculated fields, captions or "
                "folders, which an overwrite drops. Save that work, then run again with "
                "accept: [overwrite]"
            )
    if not problems:
        return None
    failed = {Check.GUARD: "\n".join(guards), Check.SCHEMA: "\n".join(schema)}
    return Refuse("\n".join(problems), {check: found for check, found in failed.items() if found})


def _why_edited(view: View) -> str:
    if any(base.metadata for base in view.bases):
        return "its metadata is not as we left it"
    return "no record tells what its metadata was when we left it"


def _needs_new_metadata(desired: State, view: View) -> bool:
    """Whether the metadata, which may be that of any base, would not fit."""
    declared_anew = any(base.declaration != desired.declaration for base in view.bases)
    return declared_anew or bool(_all_changes(desired, view))


def _all_changes(desired: State, view: View) -> list[str]:
    changes = (change for base in view.bases for change in schema_changes(desired, base))
    return list(dict.fromkeys(changes))


def _drops_edits(desired: State, view: View, options: Options) -> bool:
    return (
        _needs_new_metadata(desired, view)
        and Accept.OVERWRITE not in options.accept
        and view.edited
    )


def _is_ours(declaration: Declaration, view: View, remote: RemoteDatasource) -> bool:
    return view.named_by_us or declaration.tag in remote.tags


def _without_base(
    declaration: Declaration, view: View, remote: RemoteDatasource, options: Options
) -> Publish:
    if not _is_ours(declaration, view, remote):
        return Publish(PublishMode.OVERWRITE, "first publish: takes over the data source (adopt)")
    if Accept.OVERWRITE in options.accept:
        return Publish(PublishMode.OVERWRITE, "in full, as asked (accept: overwrite)")
    return Publish(
        PublishMode.REPLACE,
        f"in full: {view.why_no_base}; the data source carries our tag. Its metadata stays: if the "
        "schema changed meanwhile, run once with full: true, accept: [overwrite]",
    )


def _only_by_a_file(desired: State, view: View) -> Publish | None:
    """In full, because no update would do, not even one of all rows."""
    if view.trouble:
        return Publish(PublishMode.REPLACE, f"in full: {view.trouble}")
    # Updates go by the names of columns, and hashes of rows by their order.
    reordered = [
        name
        for name, table in desired.tables.items()
        if any(base.tables[name].columns != table.columns for base in view.bases)
    ]
    if reordered:
        tables = ", ".join(reordered)
        return Publish(PublishMode.REPLACE, f"in full: the order of columns changed in {tables}")
    return None


def _why_not_known(view: View, remote: RemoteDatasource, options: Options) -> Publish | None:
    """In full, because it is asked for, or because what is published is not known for certain."""
    if options.full:
        return _in_full("asked for (full: true)")
    stamps = {base.updated_at for base in view.bases if base.updated_at}
    if not stamps:
        return _in_full(
            "an earlier refresh was interrupted, and what it left is not known for certain"
        )
    if remote.updated_at not in stamps:
        return _in_full(
            "the data source changed hands: the server says that it was updated at "
            f"{remote.updated_at:%Y-%m-%d %H:%M:%S} UTC, and that was not this pipeline, as far "
            "as its records tell"
        )
    return None


def _in_full(reason: str) -> Publish:
    return Publish(PublishMode.REPLACE, f"in full: {reason}", small_as_update=True)


def _ship(declaration: Declaration, changed: Sequence[str], view: View) -> Plan:
    increments = max(base.increments for base in view.bases)
    if increments >= declaration.rebase_after:
        return Publish(
            PublishMode.REPLACE,
            f"in full: {increments} updates since the file was last published whole "
            f"(rebase_after: {declaration.rebase_after})",
        )
    gone = "the snapshot that is published is gone from the disk"
    return Update(
        tables={name: gone if name in view.gone else None for name in changed},
        reason=f"new content in {', '.join(changed)}",
    )

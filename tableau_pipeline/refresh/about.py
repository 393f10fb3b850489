"""Keep what a data source says about itself, and who may use it, as declared."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from tableau_pipeline.core.checkpoint import NEW_METADATA, Checkpoint
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.metadata.about import (
    CERTIFIED,
    DESCRIPTION,
    NOTE,
    OWNER,
    about_name,
    grantees,
    wanted_about,
)
from tableau_pipeline.metadata.merge import Conflict, Merge, OnConflict, Path, Values, merge
from tableau_pipeline.publishing import about
from tableau_pipeline.publishing.errors import SignInError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.observe import Base
from tableau_pipeline.refresh.send import Sent, changed_since

# Recorded of data quality warnings: "yes", or "refused", which is told only once.
_WARNINGS = ("about", "quality warning")


@dataclass(frozen=True, slots=True)
class Seen:
    """What there was before anything was sent.

    Attributes:
        found: the values on the server.
        written: the values that we wrote last.
        luids: of the groups and users in these and in what is wanted, by kind and name.
        rules: all permissions, if any are wanted or were written.
        phrases: what is to be set, such as 'owner becomes "dana"'.
    """

    found: Values
    written: Values
    luids: Mapping[tuple[str, str], str]
    rules: about.Rules
    phrases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What came of it.

    Attributes:
        problems: what is not as declared, as sentences.
        warnings: what else a person should know.
    """

    sent: Sent
    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()


# The values that a request sets, and the request.
Request = tuple[Collection[Path], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells a server what is declared about a data source.

    Attributes:
        link: the address of its asset in Dagster's web UI; None if that is not known.
        late: returns why its data are late; None if they are not.
    """

    declaration: Declaration
    server: TableauSite
    on_conflict: OnConflict
    link: str | None
    late: Callable[[], str | None]

    def look(self, base: Base) -> Seen | None:
        """Look before anything is sent; None if nothing is declared, nor was.

        Raises:
            RefusedError: a group or user is unknown, or a conflict is to be refused.
        """
        # Of what is gone, or was never recorded, nobody has changed anything.
        written = dict(base.checkpoint.about) if base.checkpoint and base.remote else {}
        wanted = self._wanted(certified=CERTIFIED in written)
        if not (wanted or written or self.declaration.certify or self.declaration.quality_warning):
            return None
        luids = self._luids(wanted, written)
        found, rules = {}, {}
        if base.remote:
            if any(path[0] == "permission" for path in [*wanted, *written]):
                rules = about.permissions(self.server, base.remote.luid)
            found = self._found(base.remote, luids, rules)
        result = self._merged(wanted, written, found)
        if result.conflicts and self.on_conflict == "refuse":
            conflicts = "; ".join(self._conflicts(result))
            raise RefusedError(f"{conflicts}. Nothing was sent: let both say the same")
        changes = result.changes.items()
        phrases = tuple(f"{about_name(path)} becomes {_brief(value)}" for path, value in changes)
        return Seen(found, written, luids, rules, phrases)

    def tell(self, sent: Sent, seen: Seen, *, equal: bool | None) -> Told:
        """Make the server say what is declared.

        Args:
            equal: whether the published rows were found equal to the models; None if nobody knows.
        """
        certified = CERTIFIED in seen.written if equal is None else equal
        wanted = self._wanted(certified=certified and self.declaration.certify is not None)
        result = self._merged(wanted, seen.written, seen.found)
        began, problems, warnings = self.server.now(), self._conflicts(result), []
        failed: set[Path] = set()
        requests: Sequence[Request] = ()
        try:
            requests = [*self._requests(sent, seen, wanted, result)]
        except RefreshError as error:
            failed, problems = {*wanted, *seen.written}, [*problems, str(error)]
        for paths, request in requests:
            try:
                request()
            except RefreshError as error:
                failed, problems = failed.union(paths), [*problems, str(error)]
        written = {path: value for path, value in result.written.items() if path not in failed}
        written |= {path: seen.written[path] for path in failed & seen.written.keys()}
        warned: Values = {}
        is_warned = False
        try:
            warned, is_warned = self._warned(sent, seen, equal=equal)
        except RefreshError as error:
            warned = {_WARNINGS: "refused"} if isinstance(error, RefusedError | SignInError) else {}
            if seen.written.get(_WARNINGS) != "refused":
                warnings.append(f"`quality_warning` has no effect: {error}")
        if sent.target:
            kept = tuple(sorted({**written, **warned}.items()))
            sent = replace(sent, target=sent.target.model_copy(update={"about": kept}))
        changes = sum(len(paths) for paths, _ in requests) + is_warned
        if changes:
            sent = self._looked(sent, began, changes)
        return Told(sent, problems, warnings)

    def _wanted(self, *, certified: bool) -> Values:
        models = ", ".join(table.model for table in self.declaration.tables)
        lineage = " ".join(filter(None, (f"Built from {models}.", self.link)))
        return wanted_about(self.declaration, lineage=lineage, certified=certified)

    def _merged(self, wanted: Values, written: Values, found: Values) -> Merge:
        result = merge(wanted, [written], found, on_conflict=self.on_conflict)
        # A person's change of a permission that is declared is reported, not only kept.
        drift = [path for path in result.kept if path[0] == "permission" and path in wanted]
        conflicts = [Conflict(path, wanted[path], found.get(path)) for path in drift]
        set_back = {path: wanted[path] for path in drift if self.on_conflict == "replace"}
        return replace(
            result,
            changes={**result.changes, **set_back},
            conflicts=(*result.conflicts, *conflicts),
        )

    def _conflicts(self, result: Merge) -> list[str]:
        """Sentences about what both sides changed."""
        return [
            f"{about_name(each.path)}: declared is {_brief(each.wanted)}, and the server has "
            f"{_brief(self._shown(each))}"
            + (", which is replaced" if each.path in result.changes else "")
            for each in result.conflicts
        ]

    def _shown(self, conflict: Conflict) -> str | None:
        with suppress(RefreshError):
            if conflict.path == OWNER and conflict.found:
                return self.server.user(conflict.found)[0]
        return conflict.found

    def _luids(self, wanted: Values, written: Values) -> Mapping[tuple[str, str], str]:
        """The LUIDs of groups and users by kind and name."""
        luids, unknown = {}, []
        for kind, name in grantees(wanted):
            luid = about.grantee(self.server, kind, name)
            luids |= {(kind, name): luid} if luid else {}
            unknown += [] if luid else [f'{kind} "{name}"']
        if unknown:
            raise RefusedError(
                f"The site has no {', no '.join(unknown)}, which `permissions` or `owner` names: "
                "correct the name, or create it. Nothing was sent"
            )
        for kind, name in set(grantees(written)) - luids.keys():
            # Who is gone has no permissions left that could be taken away.
            with suppress(RefusedError):
                luid = about.grantee(self.server, kind, name)
                luids |= {(kind, name): luid} if luid else {}
        return luids

    def _found(
        self, remote: RemoteDatasource, luids: Mapping[tuple[str, str], str], rules: about.Rules
    ) -> Values:
        """The values on the server; permissions of those alone whose names are known."""
        values: dict[Path, str] = {("tag", tag): "yes" for tag in remote.tags}
        values |= {DESCRIPTION: remote.description} if remote.description else {}
        if remote.certification is not None:
            values[CERTIFIED] = "yes"
            values |= {NOTE: remote.certification} if remote.certification else {}
        names = {(kind, luid): (kind, name) for (kind, name), luid in luids.items()}
        for (kind, luid, capability), mode in rules.items():
            if grantee := names.get((kind, luid)):
                values["permission", *grantee, capability] = mode
        # Whoever publishes a data source owns it from then on, which is nobody's wish.
        if remote.owner_id != self.server.user_id:
            _, values[OWNER] = names.get(("user", remote.owner_id), ("", remote.owner_id))
        return values

    def _requests(self, sent: Sent, seen: Seen, wanted: Values, result: Merge) -> Iterator[Request]:
        """Yield the requests that are needed."""
        server, remote, luids, rules = self.server, sent.remote, seen.luids, seen.rules
        has_rules = any(path[0] == "permission" for path in [*wanted, *seen.written])
        if has_rules and sent.intent and sent.intent.mode in NEW_METADATA:
            # A new data source has those of its project. An overwrite may also have taken away what
            # people have set.
            rules = about.permissions(server, remote.luid)
        after = self._found(remote, luids, rules)
        aim = {**seen.found, **result.changes}
        changes = {
            path: aim.get(path)
            for path in wanted.keys() | seen.written.keys()
            if aim.get(path) != after.get(path)
        }
        describe = partial(about.describe, server, remote.luid)
        tags = {path: value for path, value in changes.items() if path[0] == "tag"}
        if added := [path for path, value in tags.items() if value]:
            yield added, partial(server.tag, remote.luid, [tag for _, tag in added])
        if gone := [path for path, value in tags.items() if not value]:
            yield gone, partial(server.untag, remote.luid, [tag for _, tag in gone])
        if DESCRIPTION in changes:
            yield [DESCRIPTION], partial(describe, description=aim.get(DESCRIPTION) or "")
        if certification := changes.keys() & {CERTIFIED, NOTE}:
            certified = str(CERTIFIED in aim and aim[CERTIFIED] is not None).lower()
            note = aim.get(NOTE) or ""
            yield certification, partial(describe, isCertified=certified, certificationNote=note)
        if given := [path for path in changes if path[0] == "permission"]:
            key = {
                path: (path[1], luid, path[3])
                for path in given
                if (luid := luids.get((path[1], path[2])))
            }
            yield (
                given,
                partial(
                    about.set_permissions,
                    server,
                    remote.luid,
                    {key[path]: mode for path in key if (mode := aim.get(path))},
                    remove={key[path]: after[path] for path in key if path in after},
                ),
            )
        # The last one: who gives a data source away may no longer change it.
        if OWNER in changes:
            name = aim.get(OWNER)
            owner = luids.get(("user", name), name) if name else server.user_id
            yield [OWNER], partial(describe, owner=owner)

    def _warned(self, sent: Sent, seen: Seen, *, equal: bool | None) -> tuple[Values, bool]:
        """Warn of late data, or take our warning away; return what to record, and if it changed."""
        is_declared, before = self.declaration.quality_warning, seen.written.get(_WARNINGS)
        if equal is False or not (is_declared or before == "yes"):
            # A difference makes the refresh fail, which warns of it.
            return {_WARNINGS: before} if before else {}, False
        late = self.late() if is_declared else None
        text = f"Out of date: {late}" if late else None
        is_changed = set_warning(self.server, sent.remote.luid, self.declaration.tag, text)
        return {_WARNINGS: "yes"} if is_declared else {}, is_changed

    def _looked(self, sent: Sent, began: datetime, changes: int) -> Sent:
        """What the server shows after our changes, so that they are no drift."""
        try:
            remote, distrust = changed_since(self.server, sent.remote, began, changes=changes)
        except RefreshError as error:
            distrust = f"what it shows since its description was changed is not known: {error}"
            return replace(sent, distrust=sent.distrust or distrust)
        return replace(sent, remote=remote, distrust=sent.distrust or distrust)


def _brief(value: str | None) -> str:
    """A value in a sentence: of a text its first line."""
    return f'"{value.splitlines()[0]}"' if value else "none"


def set_warning(site: TableauSite, luid: str, tag: str, text: str | None) -> bool:
    """Make a text our only data quality warning, or have none; return whether that changed it.

    Args:
        tag: by it, ours are told from those of people.
    """
    message = f"{text} ({tag})" if text else None
    ours = {
        message: each
        for each, message in about.quality_warnings(site, luid)
        if message.endswith(f"({tag})")
    }
    for other in ours.keys() - {message}:
        about.remove_quality_warning(site, ours[other])
    if message and message not in ours:
        about.add_quality_warning(site, luid, message)
    return ours.keys() != ({message} if message else set())


def warn_of_failure(
    declaration: Declaration,
    record: Checkpoint | None,
    site: TableauSite,
    why: str = "The last refresh was refused or has failed",
) -> None:
    """Warn that a refresh did not come, if anything is published yet."""
    if record and record.luid:
        changed = record.changed_at
        when = f" They last changed at {changed:%Y-%m-%d %H:%M} UTC." if changed else ""
        text = f"{why}: the rows may be out of date.{when}"
        set_warning(site, record.luid, declaration.tag, text)

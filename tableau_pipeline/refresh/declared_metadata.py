"""Merge the declared metadata of a data source with the metadata on the server.

The metadata of fields are sent in the `.tds` of a package. The properties of the data source itself
are set by requests after its rows are published. Each value is merged from three values: the
declared value, the value that we wrote last, and the value on the server, which users may have
edited.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import obstore

from tableau_pipeline.core.checkpoint import (
    NEW_METADATA,
    Checkpoint,
    SavedEdits,
    TableContent,
)
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.fields import FieldMetadata, Inherited
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.content import Models
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.metadata.columns import TypesByTable, datatype_of
from tableau_pipeline.metadata.contents import Metadata, edits_phrase, read_metadata
from tableau_pipeline.metadata.formats import misfit
from tableau_pipeline.metadata.merge import (
    CERTIFIED,
    MARKS,
    ConflictPolicy,
    FieldPath,
    Merge,
    Values,
    conflict_phrases,
    is_property,
    lost_phrases,
    merge,
    quoted,
    shown,
    shown_field,
)
from tableau_pipeline.metadata.tds import Tds, merged_into
from tableau_pipeline.metadata.written import NO_VALUES, WrittenValues
from tableau_pipeline.objects.local_files import scratch
from tableau_pipeline.objects.stores import store_at, store_errors
from tableau_pipeline.outcome import Code, Distrust, Doubt
from tableau_pipeline.publishing.properties import DesiredValues, PropertiesOnServer
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.decide import Plan, Publish
from tableau_pipeline.refresh.in_place import InPlace

_NOT_ASKED = "its fields are not asked for"


@dataclass(frozen=True)
class DeclaredMetadata:
    """The metadata that a data source declares, together with the metadata on the server.

    Attributes:
        desired: the desired content of each table.
        checkpoint: the record of the last refresh whose result the server is known to have; None
            without such a record.
        models: the versions of the models. They include the comments on the columns in Spark.
        inherited: metadata of columns from sources outside of Spark; the keys are pairs of a model
            and a column. These metadata take precedence over the comments in Spark.
        link: the URL of the asset in Dagster's web UI; None if it is not known.
        accepts: whether to accept conflicts. If both the declaration and a user changed a value,
            the value on the server then stays, and is not reported again.
        held: the metadata in the `.tds` on the server; None if there are none. If the text of the
            `.tds` was not read, the metadata are as we left them.
        is_edited: whether another user may have edited `held`.
        on_server: the properties of the data source on the server; None if the properties are not
            needed, or if the server is not asked.
        to: the checkpoint whose metadata are set again, instead of the declared metadata; None to
            set the declared metadata.
    """

    declaration: Declaration
    desired: Mapping[str, TableContent]
    checkpoint: Checkpoint | None
    models: Models
    inherited: Inherited
    stored: WrittenValues
    link: str | None
    accepts: bool = False
    held: Metadata | None = None
    is_edited: bool = False
    on_server: PropertiesOnServer | None = None
    to: Checkpoint | None = None

    @property
    def _policy(self) -> ConflictPolicy:
        return "accept" if self.accepts else self.declaration.metadata.on_conflict

    @cached_property
    def fields(self) -> Values:
        """The declared values of fields.

        Raises:
            RefusedError: metadata are declared for a column that does not exist. Or a declared
                format does not fit the type of its column.
        """
        if self.to:
            return {path: text for path, text in self._set_then.items() if not is_property(path)}
        columns = {
            table_name: [column.name for column in content.columns]
            for table_name, content in self.desired.items()
        }
        fields: dict[tuple[str, str], FieldMetadata] = {}
        for table in self.declaration.tables:
            comments = self.models[table.model].comments
            for name in columns[table.name]:
                field, comment = self.inherited.get((table.model, name)), comments.get(name)
                if comment and not (field and field.description):
                    field = replace(field or FieldMetadata(), description=comment)
                if field:
                    fields[table.name, name] = field
        declared = self.declaration.declared_values(columns, fields)
        if misfits := [*self._format_misfits(declared)]:
            raise RefusedError("\n".join(misfits), code=Code.DECLARATION)
        return declared

    def _format_misfits(self, declared: Values) -> Iterator[str]:
        """Yield a sentence for each column whose declared format does not fit its type."""
        for table, columns in self.tables.items():
            for column, type_ in columns:
                path = ("field", table, column, "format")
                if problem := misfit(declared.get(path, ""), datatype_of(type_)):
                    yield f"The {shown(path)}: {problem}. Correct or remove it"

    @cached_property
    def tables(self) -> TypesByTable:
        """The columns of each table in the file to publish, with their types in Hyper."""
        return {
            self.declaration.published_name(name): [
                (column.name, hyper_type(column, table=name)) for column in table.columns
            ]
            for name, table in self.desired.items()
        }

    @cached_property
    def candidates(self) -> Sequence[Values]:
        """The sets of values that we may have written last, the newest first.

        There are several sets if we do not know whether a publish took effect as a whole.
        """
        return (
            [self.stored.read(name) for name in self.checkpoint.written] if self.checkpoint else ()
        )

    @cached_property
    def _set_then(self) -> Values:
        """The values that were set at the checkpoint `to`."""
        return self.stored.read(self.to.written[0]) if self.to and self.to.written else {}

    @property
    def last_written(self) -> Values:
        """The newest values that we wrote."""
        return self.candidates[0] if self.candidates else {}

    @property
    def declared_values(self) -> Values:
        """All declared values, of fields and of the data source."""
        return {**self.fields, **self.declared_properties()}

    def declared_properties(self, *, certified: bool | None = None) -> Values:
        """Return the declared properties of the data source.

        Args:
            certified: whether to certify the data source. None keeps the certification as we last
                set it.
        """
        if self.to:
            return {path: text for path, text in self._set_then.items() if is_property(path)}
        certified = CERTIFIED in self.last_written if certified is None else certified
        built = f"Built from {', '.join(table.model for table in self.declaration.tables)}."
        lineage = " ".join(filter(None, (built, self.link)))
        return self.declaration.declared_properties(lineage=lineage, certified=certified)

    @cached_property
    def merge(self) -> Merge | None:
        """The merge of declared and published metadata; None if there is nothing to keep or set."""
        metadata, properties = self.held, self.on_server.found if self.on_server else None
        has_fields = any(
            not is_property(path) for values in (self.fields, *self.candidates) for path in values
        )
        is_asked = {
            True: properties is not None,
            False: metadata is not None and (self.is_edited or has_fields),
        }
        declared, *candidates = sides = [
            {path: value for path, value in values.items() if is_asked[is_property(path)]}
            for values in (self.declared_values, *self.candidates)
        ]
        if not (is_asked[False] or any(sides)):
            return None
        tds = Tds(metadata.tds) if metadata and is_asked[False] and metadata.tds else None
        last = {path: value for path, value in self.last_written.items() if not is_property(path)}
        current = dict(tds.values(declared, candidates) if tds else last if is_asked[False] else {})
        if not self.is_edited:
            # If no user edited the metadata, the server made them from our file: count them as
            # values that we wrote.
            own = {path: value for path, value in current.items() if path in declared}
            candidates = [{**own, **values} for values in candidates or [{}]]
        current |= dict(properties or {})
        policy = self._policy
        result = merge(declared, candidates, current, on_conflict=policy)
        if metadata is None or tds is None:
            return replace(result, problem=None if is_asked[False] else _NOT_ASKED)
        try:
            tables = self.tables
            result = merged_into(
                tds, declared, candidates, current, on_conflict=policy, tables=tables
            )
        except ValueError as error:
            return replace(result, problem=str(error))
        gone = [*self._removed_paths(metadata, result.of_fields)]
        broken = tuple(self._broken(tds, gone, result.of_fields))
        work = {path: ", ".join(tds.work_on(path, candidates)) for path in gone if self.is_edited}
        lost = {path: words for path, words in work.items() if words}
        # A merged `.tds` keeps the server's tables and relationships. So if their declaration
        # changed, a merge cannot bring the change.
        is_changed = self.checkpoint and self.checkpoint.declaration != self.declaration.digest()
        problem = "the declaration changed" if is_changed else None
        return replace(result, problem=problem, broken=broken, lost=lost)

    def has(self, path: FieldPath) -> bool:
        """Whether a path belongs to a column to publish, or to a declared calculation."""
        if path[0] != "field":
            return (*path, "formula") in self.fields
        return path[2] in (column for column, _ in self.tables.get(path[1], ()))

    def _removed_paths(
        self, held: Metadata, changes: Mapping[FieldPath, str | None]
    ) -> Iterator[FieldPath]:
        """Yield the path, without the last part, of each column or calculation that is removed."""
        columns = (("field", *names) for names in sorted(held.columns or ()))
        yield from (path for path in columns if not self.has(path))
        for path, value in changes.items():
            if path[::2] == ("calculation", "formula") and value is None:
                yield path[:2]

    def _broken(
        self, tds: Tds, gone: Iterable[FieldPath], changes: Mapping[FieldPath, str | None]
    ) -> Iterator[str]:
        for kind, *name in gone:
            if users := tds.used_by(*name, but=changes):
                item = f'column "{name[-1]}" of "{name[0]}"' if kind == "field" else ""
                item = item or f'calculation "{name[0]}"'
                yield f"the {item}, still used in {', '.join(users)}, is gone"

    def written_by(self, plan: Plan) -> tuple[str, ...]:
        """Store the values that a plan sets; return the names of all sets of values that may apply.

        The name of the new set comes first. If the plan replaces the metadata, the names of the
        former sets follow, because the publish may fail.
        """
        before = self.checkpoint.written if self.checkpoint else ()
        is_whole = isinstance(plan, Publish) and plan.mode in NEW_METADATA
        # Store the properties as we last wrote them: new properties are set only after the rows.
        values = {path: value for path, value in self.last_written.items() if is_property(path)}
        if not is_whole or plan.merged:
            is_set = self.merge and not self.merge.problem
            fields = self.merge.written if self.merge and is_set else self.last_written
            values |= {path: value for path, value in fields.items() if not is_property(path)}
        if not (values or before):
            return ()
        name = self.stored.store(values)
        if is_whole:
            return (name, *(before or (NO_VALUES,)))
        # Some servers drop the values in mode Replace, so the empty set is the second candidate.
        return (name, NO_VALUES) if isinstance(plan, Publish) else (name,)

    def with_held(self, held: Metadata, *, is_edited: bool) -> "DeclaredMetadata":
        """Return a copy for metadata that the server has just made for a file without metadata."""
        return replace(self, checkpoint=None, held=held, is_edited=is_edited, on_server=None)

    def store_with_properties(self, values: Values) -> str:
        """Store new values of fields, and the properties written last; return the set's name."""
        properties = {path: value for path, value in self.last_written.items() if is_property(path)}
        return self.stored.store({**values, **properties})

    def still_lost(self, saved: Iterable[SavedEdits]) -> tuple[SavedEdits, ...]:
        """Return the saved edits whose column or calculation is still missing."""
        return tuple(work for work in saved if not self.has(work.path))

    def returned_work(self, saved: Iterable[SavedEdits]) -> tuple[str, ...]:
        """Return a sentence for each saved edit whose column or calculation exists again."""
        return tuple(
            f"{shown_field(work.path)} is back. What people had made of it earlier "
            f"({work.work}) is in {work.file}: copy this back with Tableau Desktop"
            for work in saved
            if self.has(work.path)
        )

    def work_lost_by(self, plan: Plan) -> tuple[str, ...]:
        """Return sentences that list the users' edits that a plan drops."""
        is_whole = isinstance(plan, Publish) and plan.mode in NEW_METADATA
        return tuple(lost_phrases(self.merge)) if self.merge and is_whole else ()

    def differences_on_server(self, sent: bytes, held: Metadata) -> list[str]:
        """Return phrases for how the metadata on the server differ from the sent metadata."""
        published = read_metadata(sent)
        if published.digest == held.digest:
            return []
        missing_work = [
            f"{kind} {', '.join(missing)}"
            for kind, names in published.work.items()
            if (missing := [name for name in names if name not in held.work.get(kind, ())])
        ]
        before, after = (Tds(tds).values(self.fields) for tds in (sent, held.tds))
        changed = [
            f"{shown(path)} ({quoted(path, after.get(path))} instead of {quoted(path, value)})"
            for path, value in before.items()
            if after.get(path) != value
        ]
        return missing_work + changed

    def of_properties(self, found: Values, *, certified: bool | None) -> Merge:
        """Merge the declared properties of the data source into the properties on the server."""
        last_written = {
            path: value for path, value in self.last_written.items() if is_property(path)
        }
        declared = self.declared_properties(certified=certified)
        if self.declaration.certify and CERTIFIED not in declared:
            # The rows differ. So withdraw the declared certification, even if a user certified the
            # data source, too: ignore the marks of values that users set.
            last_written = {
                path: value for path, value in last_written.items() if path[0] not in MARKS
            }
        return merge(declared, [last_written], found, on_conflict=self._policy)

    def set_properties(
        self,
        reached: Checkpoint,
        remote: RemoteDatasource,
        *,
        equal: bool | None,
        is_new: bool,
        in_place: InPlace,
    ) -> "PropertiesSet | None":
        """Set the declared properties of the data source, after its rows are published.

        Args:
            reached: the checkpoint of this refresh. Its `written` names the written values of
                fields.
            equal: whether the published rows equal the rows of the models; None if they were not
                compared.
            is_new: whether a file has replaced the metadata since the metadata were read.

        Returns:
            The result; None if no properties are declared, and none were declared before.
        """
        properties, last_written = self.on_server, self.last_written
        if properties is None:
            return None
        result = self.of_properties(properties.found, certified=equal)
        failed: Mapping[FieldPath, str] = {}
        distrust = None
        if is_new or properties.differs(remote, {**properties.found, **result.changes}):
            try:
                # Minutes may have passed since the values were read, and users may have changed the
                # values.
                remote, distrust = in_place.seen_since(remote)
                properties.read_again(remote, is_new=is_new)
            except RefreshError as error:
                failed = properties.all_failed(error)
            else:
                result = self.of_properties(properties.found, certified=equal)
                aim = {**properties.found, **result.changes}
                remote, others, failed = _set(properties, remote, aim, in_place)
                distrust = distrust or others
        ours = {path: value for path, value in result.written.items() if path not in failed}
        ours |= {path: last_written[path] for path in failed.keys() & last_written.keys()}
        return PropertiesSet(
            remote=remote,
            written=self._store_with(ours, reached),
            problems=tuple(dict.fromkeys([*conflict_phrases(result), *failed.values()])),
            distrust=distrust,
        )

    def _store_with(self, ours: Values, reached: Checkpoint) -> tuple[str, ...]:
        """Store properties with the values of fields in a checkpoint; return the new names.

        If it is unknown which values of fields the server has, there are several names.
        """
        candidates = [self.stored.read(name) for name in reached.written] or [{}] * bool(ours)
        fields = [
            {path: value for path, value in values.items() if not is_property(path)}
            for values in candidates
        ]
        return tuple(dict.fromkeys(self.stored.store({**values, **ours}) for values in fields))


def _set(
    properties: PropertiesOnServer, remote: RemoteDatasource, aim: DesiredValues, in_place: InPlace
) -> tuple[RemoteDatasource, Distrust | None, Mapping[FieldPath, str]]:
    """Set properties.

    Returns:
        The data source after the change; why another user may have changed it, too (None if only
            we changed it); and the reason for each value that was not set, by path.
    """
    began = properties.site.now()
    changes, failed = properties.set(remote, aim)
    if not changes:
        return remote, None, failed
    try:
        # Look at the result, so that later refreshes do not mistake our changes for another user's.
        remote, distrust = in_place.changed_since(remote, began, changes=changes)
    except RefreshError as error:
        reason = f"it could not be read after its description was changed: {error}"
        return remote, Distrust(Doubt.NOT_SEEN, reason), failed
    return remote, distrust, {**properties.dropped(remote, aim), **failed}


@dataclass(frozen=True, slots=True)
class PropertiesSet:
    """The result of setting the properties of a data source.

    Attributes:
        written: the names of the stored values; see `Checkpoint.written`.
        problems: how the properties on the server differ from the declared properties.
        distrust: why another user may have changed the data source, too; None if only we changed
            it.
    """

    remote: RemoteDatasource
    written: tuple[str, ...]
    problems: tuple[str, ...] = ()
    distrust: Distrust | None = None


def back_up(
    server: TableauSite, remote: RemoteDatasource, *, location: Path | str, name: str
) -> str:
    """Save a data source with users' edits; return the path or URL of the file.

    Args:
        location: a folder, or the URL of a folder in an object store.
        name: the name of the file, without its suffix.

    Raises:
        RefreshError: the data source cannot be saved.
    """
    try:
        with TemporaryDirectory(prefix="keep ", dir=scratch()) as folder:
            package = server.download(remote.luid, Path(folder))
            file = f"{name}{package.suffix}"
            with store_errors("Writing", f"{location}/{file}"):
                obstore.put(store_at(location), file, package)
            return f"{location}/{file}"
    except OSError as error:
        raise RefreshError(
            f'"{remote.name}" cannot be saved in {location} before it is replaced: {error}. '
            "Nothing was sent"
        ) from error


def check_kept(
    server: TableauSite,
    remote: RemoteDatasource,
    before: Metadata | None,
    *,
    saved: str | None,
) -> None:
    """Check that a publish in mode Replace has kept the metadata.

    Args:
        before: the metadata before the publish; None if they are not known.
        saved: the path or URL of the file with the former data source.

    Raises:
        RefreshError: the metadata have changed, or `before` is None.
    """
    if before and server.metadata(remote.luid).digest == before.digest:
        return
    raise RefreshError(
        f'"{remote.name}" was taken over by a publish in mode Replace, which should keep the '
        f"metadata, but the server changed them. They held {edits_phrase(before)}. The former data "
        f"source is in {saved}: copy that work back with Tableau Desktop. The rows "
        "are those of the models now, and the next run goes on from there"
    )

"""The declared metadata of a data source on their way through one refresh.

What is declared of fields travels in the `.tds` of a package. What is declared of the data source
itself is set by requests, once its rows are there. Both are merged by three values: what is
declared, what we have written last, and what the server has, where people work, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import obstore

from tableau_pipeline.core.checkpoint import NEW_METADATA, Checkpoint, SavedWork, TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.fields import FieldMetadata, Inherited
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.content import Models
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.metadata.columns import TypesByTable, datatype_of
from tableau_pipeline.metadata.document import Metadata, read_metadata, work_in
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
from tableau_pipeline.metadata.written import NO_VALUES, Written
from tableau_pipeline.objects.local_files import scratch
from tableau_pipeline.objects.stores import store_at, store_errors
from tableau_pipeline.outcome import Code, Distrust, Doubt
from tableau_pipeline.publishing.properties import PropertiesOnServer
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.decide import Plan, Publish
from tableau_pipeline.refresh.in_place import changed_since

_NOT_ASKED = "its fields are not asked for"


@dataclass(frozen=True)
class DeclaredMetadata:
    """The metadata that a data source declares, beside those on the server.

    Attributes:
        desired: the content that each table is to have.
        checkpoint: what is known to be published.
        models: the versions of the models; Spark keeps comments of their columns.
        inherited: what is said of columns elsewhere, by model and column; it beats the comments of
            the columns in Spark.
        link: the address of the asset in Dagster's web UI; None if that is not known.
        accepts: leave what both the declaration and a person changed as it is on the server, and
            do not report it again.
        held: what the `.tds` on the server holds; without its content, it is as we left it. None
            if there is none.
        is_edited: another user may have edited that.
        on_server: what the server says of the data source itself; None if it is not asked.
    """

    declaration: Declaration
    desired: Mapping[str, TableContent]
    checkpoint: Checkpoint | None
    models: Models
    inherited: Inherited
    stored: Written
    link: str | None
    accepts: bool = False
    held: Metadata | None = None
    is_edited: bool = False
    on_server: PropertiesOnServer | None = None

    @property
    def _policy(self) -> ConflictPolicy:
        return "accept" if self.accepts else self.declaration.metadata.on_conflict

    @cached_property
    def fields(self) -> Values:
        """The values of fields that are declared.

        Raises:
            RefusedError: something is declared of columns that there are not.
        """
        columns = {name: [e.name for e in table.columns] for name, table in self.desired.items()}
        said: dict[tuple[str, str], FieldMetadata] = {}
        for table in self.declaration.tables:
            comments = self.models[table.model].comments
            for column in columns[table.name]:
                field, comment = self.inherited.get((table.model, column)), comments.get(column)
                if comment and not (field and field.description):
                    field = replace(field or FieldMetadata(), description=comment)
                if field:
                    said[table.name, column] = field
        declared = self.declaration.declared_values(columns, said)
        if misfits := [*self._misfits(declared)]:
            raise RefusedError("\n".join(misfits), code=Code.DECLARATION)
        return declared

    def _misfits(self, declared: Values) -> Iterator[str]:
        """Yield a sentence for each column whose type has no such format."""
        for table, columns in self.tables.items():
            for name, type_ in columns:
                path = ("field", table, name, "format")
                if problem := misfit(declared.get(path, ""), datatype_of(type_)):
                    yield f"The {shown(path)}: {problem}. Correct or remove it"

    @cached_property
    def tables(self) -> TypesByTable:
        """The columns of the file to be published."""
        return {
            self.declaration.published_name(name): [
                (column.name, hyper_type(column, table=name)) for column in table.columns
            ]
            for name, table in self.desired.items()
        }

    @cached_property
    def candidates(self) -> Sequence[Values]:
        """What was written last, the newest first; several if it is not known which."""
        return (
            [self.stored.read(name) for name in self.checkpoint.written] if self.checkpoint else ()
        )

    @property
    def last_written(self) -> Values:
        """The newest values that were written."""
        return self.candidates[0] if self.candidates else {}

    @property
    def declared_values(self) -> Values:
        """All values that are declared."""
        return {**self.fields, **self.declared_properties()}

    def declared_properties(self, *, certified: bool | None = None) -> Values:
        """What is declared of the data source itself, by default certified like before."""
        certified = CERTIFIED in self.last_written if certified is None else certified
        built = f"Built from {', '.join(table.model for table in self.declaration.tables)}."
        lineage = " ".join(filter(None, (built, self.link)))
        return self.declaration.declared_properties(lineage=lineage, certified=certified)

    @cached_property
    def merge(self) -> Merge | None:
        """What becomes of the metadata on the server; None if there are none to keep or set."""
        held, properties = self.held, self.on_server.found if self.on_server else None
        is_ours = any(
            not is_property(path) for each in (self.fields, *self.candidates) for path in each
        )
        asked = {
            True: properties is not None,
            False: held is not None and (self.is_edited or is_ours),
        }
        declared, *candidates = sides = [
            {path: value for path, value in each.items() if asked[is_property(path)]}
            for each in (self.declared_values, *self.candidates)
        ]
        if not (asked[False] or any(sides)):
            return None
        tds = Tds(held.tds) if held and asked[False] and held.tds else None
        last = {path: value for path, value in self.last_written.items() if not is_property(path)}
        found = dict(tds.values(declared, candidates) if tds else last if asked[False] else {})
        if not self.is_edited:
            # What the server has made of a file is nobody's work.
            own = {path: value for path, value in found.items() if path in declared}
            candidates = [{**own, **each} for each in candidates or [{}]]
        found |= dict(properties or {})
        policy = self._policy
        result = merge(declared, candidates, found, on_conflict=policy)
        if held is None or tds is None:
            return replace(result, problem=None if asked[False] else _NOT_ASKED)
        try:
            tables = self.tables
            result = merged_into(
                tds, declared, candidates, found, on_conflict=policy, tables=tables
            )
        except ValueError as error:
            return replace(result, problem=str(error))
        gone = [*self._gone(held, result.of_fields)]
        broken = tuple(self._broken(tds, gone, result.of_fields))
        work = {path: ", ".join(tds.work_on(path, candidates)) for path in gone if self.is_edited}
        lost = {path: words for path, words in work.items() if words}
        # Nobody edits the relationships of tables in a `.tds`.
        is_other = self.checkpoint and self.checkpoint.declaration != self.declaration.digest()
        problem = "the declaration changed" if is_other else None
        return replace(result, problem=problem, broken=broken, lost=lost)

    def has(self, path: FieldPath) -> bool:
        """Whether there is to be a column, or is declared a calculation, with these first parts."""
        if path[0] != "field":
            return (*path, "formula") in self.fields
        return path[2] in (column for column, _ in self.tables.get(path[1], ()))

    def _gone(self, held: Metadata, changes: Mapping[FieldPath, str | None]) -> Iterator[FieldPath]:
        """The first parts of the paths of columns and calculations that go."""
        columns = (("field", *each) for each in sorted(held.columns or ()))
        yield from (path for path in columns if not self.has(path))
        for path, value in changes.items():
            if path[::2] == ("calculation", "formula") and value is None:
                yield path[:2]

    def _broken(
        self, tds: Tds, gone: Iterable[FieldPath], changes: Mapping[FieldPath, str | None]
    ) -> Iterator[str]:
        for kind, *name in gone:
            if users := tds.used_by(*name, but=changes):
                what = f'column "{name[-1]}" of "{name[0]}"' if kind == "field" else ""
                what = what or f'calculation "{name[0]}"'
                yield f"the {what} is gone, which is in {', '.join(users)}"

    def written_by(self, plan: Plan) -> tuple[str, ...]:
        """Store the values that a plan sets; name them, and those before if it may not succeed."""
        before = self.checkpoint.written if self.checkpoint else ()
        is_whole = isinstance(plan, Publish) and plan.mode in NEW_METADATA
        # Those of the data source itself are set later.
        now = {path: value for path, value in self.last_written.items() if is_property(path)}
        if not is_whole or plan.merged:
            is_set = self.merge and not self.merge.problem
            fields = self.merge.written if self.merge and is_set else self.last_written
            now |= {path: value for path, value in fields.items() if not is_property(path)}
        if not (now or before):
            return ()
        name = self.stored.store(now)
        if is_whole:
            return (name, *(before or (NO_VALUES,)))
        # Some servers drop them in mode Replace.
        return (name, NO_VALUES) if isinstance(plan, Publish) else (name,)

    def made_of(self, held: Metadata, *, is_edited: bool) -> "DeclaredMetadata":
        """Return the same beside what the server has just made of a file without metadata."""
        return replace(self, checkpoint=None, held=held, is_edited=is_edited, on_server=None)

    def written_into(self, values: Values) -> str:
        """Store values of fields that are about to be set; those of the data source itself stay."""
        about = {path: value for path, value in self.last_written.items() if is_property(path)}
        return self.stored.store({**values, **about})

    def still_gone(self, saved: Iterable[SavedWork]) -> tuple[SavedWork, ...]:
        """Return the saved work of people on what has not come back."""
        return tuple(each for each in saved if not self.has(each.path))

    def returned(self, saved: Iterable[SavedWork]) -> tuple[str, ...]:
        """What people had made of columns and calculations that are back, in sentences."""
        return tuple(
            f"{shown_field(each.path)} is back. What people had made of it before it went "
            f"({each.work}) is in {each.file}: copy it back with Tableau Desktop"
            for each in saved
            if self.has(each.path)
        )

    def lost_by(self, plan: Plan) -> tuple[str, ...]:
        """What people made that a plan takes along, in sentences."""
        is_whole = isinstance(plan, Publish) and plan.mode in NEW_METADATA
        return tuple(lost_phrases(self.merge)) if self.merge and is_whole else ()

    def not_kept(self, sent: bytes, held: Metadata) -> list[str]:
        """What the server does not hold of the metadata that were sent, as phrases."""
        meant = read_metadata(sent)
        if meant.digest == held.digest:
            return []
        gone = [
            f"{kind} {', '.join(missing)}"
            for kind, names in meant.work.items()
            if (missing := [name for name in names if name not in held.work.get(kind, ())])
        ]
        before, after = (Tds(each).values(self.fields) for each in (sent, held.tds))
        changed = [
            f"{shown(path)} ({quoted(path, after.get(path))} instead of {quoted(path, value)})"
            for path, value in before.items()
            if after.get(path) != value
        ]
        return gone + changed

    def of_properties(self, found: Values, *, certified: bool | None) -> Merge:
        """Merge what is declared of the data source itself into what the server says of it."""
        past = {path: value for path, value in self.last_written.items() if is_property(path)}
        declared = self.declared_properties(certified=certified)
        if self.declaration.certify and CERTIFIED not in declared:
            # As long as it is declared, it is withdrawn from rows that differ, whoever gave it.
            past = {path: value for path, value in past.items() if path[0] not in MARKS}
        return merge(declared, [past], found, on_conflict=self._policy)

    def set_properties(
        self, reached: Checkpoint, remote: RemoteDatasource, *, equal: bool | None, is_new: bool
    ) -> "PropertiesSet | None":
        """Set what is declared of the data source itself, once its rows are there.

        Args:
            reached: the checkpoint that names the values of fields that were written.
            equal: whether the published rows were found equal to the models; None if nobody knows.
            is_new: a file has replaced its metadata since they were read.

        Returns:
            What came of it; None if nothing is declared, or was.
        """
        properties, past, stored = self.on_server, self.last_written, self.stored
        if properties is None:
            return None
        began = properties.site.now()
        result = self.of_properties(properties.found, certified=equal)
        aim = {**properties.found, **result.changes}
        changes, failed = properties.set(remote, aim, is_new=is_new)
        distrust = None
        if changes:
            try:
                # So that they are no drift.
                remote, distrust = changed_since(properties.site, remote, began, changes=changes)
                failed = {**properties.dropped(remote, aim), **failed}
            except RefreshError as error:
                why = f"what it shows since its description was changed is not known: {error}"
                distrust = Distrust(Doubt.NOT_SEEN, why)
        fields = stored.read(reached.written[0]) if reached.written else {}
        now = {path: value for path, value in fields.items() if not is_property(path)}
        now |= {path: value for path, value in result.written.items() if path not in failed}
        now |= {path: past[path] for path in failed.keys() & past.keys()}
        return PropertiesSet(
            remote=remote,
            written=(stored.store(now),) if now or reached.written else (),
            problems=tuple(dict.fromkeys([*conflict_phrases(result), *failed.values()])),
            distrust=distrust,
        )


@dataclass(frozen=True, slots=True)
class PropertiesSet:
    """What came of setting the properties of a data source.

    Attributes:
        written: names the values of metadata that are set now, those of fields among them.
        problems: in what the server says other than is declared.
        distrust: why another user may have changed the data source as well; None if none has.
    """

    remote: RemoteDatasource
    written: tuple[str, ...]
    problems: tuple[str, ...] = ()
    distrust: Distrust | None = None


def back_up(
    server: TableauSite, remote: RemoteDatasource, *, location: Path | str, name: str
) -> str:
    """Save what people made in a data source, with the rest of it; return the path or URL.

    Args:
        location: a folder, or the URL of one in an object store.
        name: of the file, without its suffix.

    Raises:
        RefreshError: it cannot be saved.
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
    """Check that the server has kept the metadata over a publish in mode Replace.

    Raises:
        RefreshError: it has not.
    """
    if before and server.metadata(remote.luid).digest == before.digest:
        return
    raise RefreshError(
        f'"{remote.name}" was taken over by a publish in mode Replace, which should keep the '
        f"metadata, but the server changed it. It held {work_in(before)}. The data source as "
        f"it was before is in {saved}: copy that work back with Tableau Desktop. Its rows "
        "are those of the models now, and the next run goes on from there"
    )

"""The metadata that a data source declares, and what becomes of those on the server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.extracts.desired import Models
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.metadata.document import Metadata, read_metadata
from tableau_pipeline.metadata.fields import CERTIFIED, FieldMetadata, Inherited
from tableau_pipeline.metadata.merge import (
    Merge,
    Path,
    Values,
    Written,
    is_about,
    merge,
    quoted,
    shown,
)
from tableau_pipeline.metadata.tds import Tables, Tds

_NOT_ASKED = "its fields are not asked for"


@dataclass(frozen=True)
class Declared:
    """The metadata that a data source declares, and what was written of them before.

    Attributes:
        desired: the content that each table is to have.
        record: what is known to be published.
        inherited: what is said of columns elsewhere, by model and column; it beats the comments of
            the columns in Spark.
        link: the address of the asset in Dagster's web UI; None if that is not known.
    """

    declaration: Declaration
    desired: Mapping[str, TableContent]
    record: Checkpoint | None
    models: Models
    inherited: Inherited
    stored: Written
    link: str | None

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
        return self.declaration.wanted(columns, said)

    @cached_property
    def tables(self) -> Tables:
        """The columns of the file to be published."""
        return {
            self.declaration.published_name(name): [
                (column.name, hyper_type(column, table=name)) for column in table.columns
            ]
            for name, table in self.desired.items()
        }

    @cached_property
    def pasts(self) -> Sequence[Values]:
        """What was written last, the newest first; several if it is not known which."""
        return [self.stored.read(name) for name in self.record.written] if self.record else ()

    @property
    def past(self) -> Values:
        """The newest values that were written."""
        return self.pasts[0] if self.pasts else {}

    @property
    def wanted(self) -> Values:
        """All values that are declared."""
        return {**self.fields, **self.about()}

    def about(self, *, certified: bool | None = None) -> Values:
        """What is declared of the data source itself, by default certified like before."""
        certified = CERTIFIED in self.past if certified is None else certified
        built = f"Built from {', '.join(table.model for table in self.declaration.tables)}."
        lineage = " ".join(filter(None, (built, self.link)))
        return self.declaration.about(lineage=lineage, certified=certified)

    def merged(
        self, held: Metadata | None, about: Values | None, *, is_edited: bool
    ) -> Merge | None:
        """Merge what is declared into what the server holds; None if nothing is to keep or set.

        Args:
            held: what it holds; without a `.tds`, what was written last.
            about: the values that it has of the data source itself; None if they are not asked for.
            is_edited: whether another user may have edited the metadata of fields.
        """
        is_ours = any(not is_about(path) for each in (self.fields, *self.pasts) for path in each)
        asked = {True: about is not None, False: held is not None and (is_edited or is_ours)}
        wanted, *pasts = sides = [
            {path: value for path, value in each.items() if asked[is_about(path)]}
            for each in (self.wanted, *self.pasts)
        ]
        if not (asked[False] or any(sides)):
            return None
        tds = Tds(held.tds) if held and asked[False] and held.tds else None
        last = {path: value for path, value in self.past.items() if not is_about(path)}
        found = dict(tds.values(wanted, pasts) if tds else last if asked[False] else {})
        if not is_edited:
            # What the server has made of a file is nobody's work.
            own = {path: value for path, value in found.items() if path in wanted}
            pasts = [{**own, **each} for each in pasts or [{}]]
        result = merge(
            wanted,
            pasts,
            found | dict(about or {}),
            on_conflict=self.declaration.metadata.on_conflict,
        )
        if held is None or tds is None:
            return replace(result, problem=None if asked[False] else _NOT_ASKED)
        try:
            edited = tds.edited(result.of_fields, self.tables)
        except ValueError as error:
            return replace(result, problem=str(error))
        broken = tuple(self._broken(tds, held, result.of_fields))
        # Nobody edits the relationships of tables in a `.tds`.
        is_other = self.record and self.record.declaration != self.declaration.digest()
        problem = "the declaration changed" if is_other else None
        return replace(result, tds=edited, problem=problem, broken=broken)

    def merged_about(self, found: Values, *, certified: bool | None) -> Merge:
        """Merge what is declared of the data source itself into what the server says of it."""
        past = {path: value for path, value in self.past.items() if is_about(path)}
        wanted = self.about(certified=certified)
        return merge(wanted, [past], found, on_conflict=self.declaration.metadata.on_conflict)

    def _broken(
        self, tds: Tds, held: Metadata, changes: Mapping[Path, str | None]
    ) -> Iterator[str]:
        kept = {(table, column) for table, columns in self.tables.items() for column, _ in columns}
        for table, column in sorted((held.columns or frozenset()) - kept):
            if users := tds.used_by(table, column, but=changes):
                yield f'the column "{column}" of "{table}" is gone, which is in {", ".join(users)}'
        for path, value in changes.items():
            is_gone = path[2:] == ("formula",) and value is None
            if is_gone and (users := tds.used_by(path[1], but=changes)):
                yield f'the calculation "{path[1]}" is gone, which is in {", ".join(users)}'


def lost(sent: bytes, held: Metadata, declared: Declared) -> list[str]:
    """What the server does not hold of the metadata that were sent, as phrases."""
    meant = read_metadata(sent)
    if meant.digest == held.digest:
        return []
    gone = [
        f"{kind} {', '.join(missing)}"
        for kind, names in meant.work.items()
        if (missing := [name for name in names if name not in held.work.get(kind, ())])
    ]
    before, after = (Tds(each).values(declared.fields) for each in (sent, held.tds))
    changed = [
        f"{shown(path)} ({quoted(path, after.get(path))} instead of {quoted(path, value)})"
        for path, value in before.items()
        if after.get(path) != value
    ]
    return gone + changed

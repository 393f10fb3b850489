"""What becomes of metadata: what is declared, merged into what the server holds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.metadata.about import CERTIFIED, About
from tableau_pipeline.metadata.columns import Tables
from tableau_pipeline.metadata.digest import Metadata, read_metadata
from tableau_pipeline.metadata.merge import (
    Merge,
    OnConflict,
    Path,
    Values,
    conflict_phrases,
    is_about,
    merge,
    quoted,
    shown,
)
from tableau_pipeline.metadata.tds import Tds
from tableau_pipeline.metadata.written import Written

_NOT_ASKED = "its fields are not asked for"


@dataclass(frozen=True, slots=True)
class Merged:
    """What becomes of the metadata of a data source on the server.

    Attributes:
        found: what the server held of the values.
        tds: with the changes, for the desired tables; None if the server was not asked, or
            `problem`.
        problem: why what it holds of fields cannot be kept when a file with the desired tables is
            published, as a phrase; None if it can be.
        broken: phrases for what people have made of columns that go.
    """

    merge: Merge
    found: Values
    tds: bytes | None = None
    problem: str | None = None
    broken: tuple[str, ...] = ()

    @property
    def phrase(self) -> str:
        """What a file is to bring along: "metadata: caption of flights.delay"; "" for nothing."""
        changes = ", ".join(shown(path) for path in self.merge.changes if not is_about(path))
        return f"metadata: {changes}" if changes and not self.problem else ""

    @property
    def warnings(self) -> list[str]:
        """What a person should know of it, in sentences."""
        found = conflict_phrases(self.merge)
        if self.problem and not all(map(is_about, self.merge.changes)):
            found.append(f"What is declared of metadata cannot be set: {self.problem}")
        return found


@dataclass(frozen=True, slots=True)
class Declared:
    """The metadata that a data source declares, and what was written of them before.

    Attributes:
        fields: the values of fields that are declared.
        about: what is declared of the data source itself; `lineage` is added to its description.
        tables: the desired ones.
        pasts: what was written last, the newest first; several if it is not known which.
        problem: why the fields on the server cannot be kept; None if they can be.
    """

    fields: Values
    about: About
    lineage: str
    on_conflict: OnConflict
    tables: Tables
    stored: Written
    pasts: Sequence[Values] = ()
    problem: str | None = None

    @property
    def past(self) -> Values:
        """The newest values that were written."""
        return self.pasts[0] if self.pasts else {}

    def wanted(self, *, certified: bool | None = None) -> Values:
        """All values that are declared, by default certified like before."""
        certified = CERTIFIED in self.past if certified is None else certified
        return {**self.fields, **self.about.about(lineage=self.lineage, certified=certified)}

    def merged(
        self, held: Metadata | None, about: Values | None, *, is_edited: bool
    ) -> Merged | None:
        """Merge what is declared into what the server holds; None if nothing is to keep or set.

        Args:
            held: what it holds; without a `.tds`, what was written last.
            about: the values that it has of the data source itself; None if they are not asked for.
            is_edited: whether another user may have edited the metadata of fields.

        Raises:
            RefusedError: what is declared of fields cannot be set.
        """
        is_asked = held is not None and (
            is_edited or any(not is_about(p) for each in (self.fields, *self.pasts) for p in each)
        )
        asked = {True: about is not None, False: is_asked}
        wanted, *pasts = sides = [
            {path: value for path, value in each.items() if asked[is_about(path)]}
            for each in (self.wanted(), *self.pasts)
        ]
        if not (is_asked or any(sides)):
            return None
        try:
            tds = Tds(held.tds) if held and is_asked and held.tds else None
        except ValueError as error:
            if self.fields or any(pasts):
                raise RefusedError(str(error)) from error
            return None
        found = {
            **(tds.values(wanted, pasts) if tds else next(iter(pasts), {}) if is_asked else {})
        }
        if not is_edited:
            # What the server has made of a file is nobody's work.
            own = {path: value for path, value in found.items() if path in wanted}
            pasts = [{**own, **each} for each in pasts or [{}]]
        found |= about or {}
        result = merge(wanted, pasts, found, on_conflict=self.on_conflict)
        if held is None or tds is None:
            return Merged(result, found, problem=None if is_asked else _NOT_ASKED)
        changes = {path: value for path, value in result.changes.items() if not is_about(path)}
        try:
            edited = tds.edited(changes, self.tables)
        except ValueError as error:
            return Merged(result, found, problem=str(error))
        broken = tuple(self._broken(tds, held, changes))
        return Merged(result, found, edited, self.problem, broken)

    def merged_about(self, found: Values, *, certified: bool) -> Merge:
        """Merge what is declared of the data source itself into what the server says of it."""
        wanted = self.about.about(lineage=self.lineage, certified=certified)
        past = {path: value for path, value in self.past.items() if is_about(path)}
        return merge(wanted, [past], found, on_conflict=self.on_conflict)

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

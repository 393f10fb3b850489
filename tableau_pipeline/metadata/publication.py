"""The metadata to publish: what is declared, merged into what the server holds."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from uuid import uuid4

import obstore

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.metadata.columns import Tables
from tableau_pipeline.metadata.digest import Metadata, read_metadata
from tableau_pipeline.metadata.merge import (
    Merge,
    OnConflict,
    Path,
    Values,
    merge,
    shown,
    shown_value,
)
from tableau_pipeline.metadata.tds import Tds
from tableau_pipeline.objects.stores import opened, read_object, store_errors

# Names no values at all: a file without metadata was published.
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Merged:
    """What becomes of the metadata of a data source on the server.

    Attributes:
        found: what the server held of the values.
        tds: with the changes, for the desired tables; None if the server was not asked, or
            `problem`.
        problem: why it cannot be kept when a file with the desired tables is published, as a
            phrase; None if it can be.
        broken: phrases for what people have made of columns that go.
    """

    merge: Merge
    found: Values
    tds: bytes | None = None
    problem: str | None = None
    broken: tuple[str, ...] = ()

    @property
    def phrase(self) -> str:
        """Such as "metadata: caption of flights.delay"; "" if nothing can change."""
        changes = ", ".join(shown(path) for path in self.merge.changes)
        return f"metadata: {changes}" if changes and not self.problem else ""

    @property
    def warnings(self) -> list[str]:
        """What a person should know of it, in sentences."""
        found = conflict_phrases(self.merge)
        if self.problem and self.merge.changes:
            found.append(f"What is declared of metadata cannot be set: {self.problem}")
        return found


@dataclass(frozen=True, slots=True)
class Declared:
    """The metadata that a data source declares, and where the values that were set are stored.

    Attributes:
        tables: the desired ones.
        place: a folder, or its URL in an object store.
    """

    wanted: Values
    on_conflict: OnConflict
    tables: Tables
    place: FilePath | str

    def merged(self, held: Metadata, written: Sequence[str], *, is_edited: bool) -> Merged:
        """Merge what is declared into what the server holds.

        Args:
            held: what it holds; without a `.tds`, what was written last.
            written: names what was written last, the newest first.
            is_edited: whether another user may have edited the metadata.

        Raises:
            ValueError: what the server holds cannot be read.
        """
        pasts = [self._stored(name) for name in written]
        tds = Tds(held.tds) if held.tds else None
        found = tds.values(self.wanted, pasts) if tds else next(iter(pasts), {})
        if not is_edited:
            # What the server has made of a file is nobody's work.
            own = {path: value for path, value in found.items() if path in self.wanted}
            pasts = [{**own, **each} for each in pasts or [{}]]
        result = merge(self.wanted, pasts, found, on_conflict=self.on_conflict)
        if tds is None:
            return Merged(result, found)
        try:
            edited = tds.edited(result.changes, self.tables)
        except ValueError as error:
            return Merged(result, found, problem=str(error))
        return Merged(result, found, edited, broken=tuple(self._broken(tds, held, result)))

    def _broken(self, tds: Tds, held: Metadata, result: Merge) -> Iterator[str]:
        kept = {(table, column) for table, columns in self.tables.items() for column, _ in columns}
        for table, column in sorted((held.columns or frozenset()) - kept):
            if users := tds.used_by(table, column, but=result.changes):
                yield f'the column "{column}" of "{table}" is gone, which is in {", ".join(users)}'
        formulas = (path for path, value in result.changes.items() if value is None)
        for name in [path[1] for path in formulas if path[2:] == ("formula",)]:
            if users := tds.used_by(name, but=result.changes):
                yield f'the calculation "{name}" is gone, which is in {", ".join(users)}'

    def store(self, values: Values) -> str:
        """Store values that are about to be set; return the name by which records refer to them."""
        text = json.dumps(sorted([list(path), value] for path, value in values.items()))
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        if isinstance(self.place, str):
            with store_errors("Writing", f"{self.place}/{digest}.json"):
                obstore.put(opened(self.place), f"{digest}.json", text.encode())
            return digest
        file, partial = (self.place / f"{digest}{end}" for end in (".json", f".{uuid4()}"))
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8")
            partial.replace(file)
        except OSError as error:
            why = f"The metadata to be set cannot be stored in {self.place}: {error}."
            raise RefreshError(f"{why} Nothing was sent") from error
        return digest

    def _stored(self, name: str) -> Values:
        """Values that were stored; none if they are gone, so that whatever is there counts."""
        if name == NOTHING:
            return {}
        if isinstance(self.place, str):
            found = read_object(f"{self.place}/{name}.json")
        else:
            file = self.place / f"{name}.json"
            found = file.read_bytes() if file.exists() else None
        return {tuple(path): value for path, value in json.loads(found or "[]")}


def change_phrases(result: Merge) -> list[str]:
    """Such as 'caption of flights.delay becomes "Delay"'."""
    return [
        f"{shown(path)} becomes {_quoted(path, value)}" for path, value in result.changes.items()
    ]


def conflict_phrases(result: Merge) -> list[str]:
    """A phrase for each value that both the declaration and a person changed."""
    return [
        f"{shown(each.path)} is {_quoted(each.path, each.wanted)} as declared, and "
        f"{_quoted(each.path, each.found)} on the server"
        for each in result.conflicts
    ]


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
    before, after = (Tds(each).values(declared.wanted) for each in (sent, held.tds))
    changed = [
        f"{shown(path)} ({_quoted(path, after.get(path))} instead of {_quoted(path, value)})"
        for path, value in before.items()
        if after.get(path) != value
    ]
    return gone + changed


def _quoted(path: Path, value: str | None) -> str:
    return "none" if value is None else f'"{shown_value(path, value)}"'

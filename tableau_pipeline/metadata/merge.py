"""The three-way merge of metadata: what is declared, what was last written, and what is there."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from tableau_pipeline.hyper.types import EXTRACT_SCHEMA

# ("field", table, column, "caption"), ("calculation", "Margin", "formula"),
# ("hierarchy", "Route", "fields"): the tables have their names in the published file. And of the
# data source itself: ("about", "owner"), ("tag", "finance"),
# ("permission", "Analysts", "Read").
FieldPath = tuple[str, ...]
DESCRIPTION, OWNER = ("about", "description"), ("about", "owner")
CERTIFIED, NOTE = ("about", "certified"), ("about", "certification note")
# What is absent is as the products have it by default.
Values = Mapping[FieldPath, str]
OnConflict = Literal["keep", "replace", "refuse"]
# "accept" keeps what a person has set, and does not report it again.
ConflictPolicy = OnConflict | Literal["accept"]
# Before the path of a written value: a person had set it when it was first declared.
THEIRS = "theirs"
# Before the path of a value: which two values of it, the declared and the found, were accepted.
ACCEPTED = "accepted"
MARKS = frozenset({THEIRS, ACCEPTED})
# Behind the path of a calculation or caption: a field of somebody else has the same name.
TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Merge:
    """What follows from the three, and for a `.tds` from its changes.

    Attributes:
        declared: the values that were asked for; `found` are those that the server held.
        changes: values to set; None removes one.
        kept: values that a person changed, and the declaration did not; None if removed.
        conflicts: what both the declaration and a person changed, reported whatever the policy. By
            `replace`, they are among the changes, but for calculations whose name somebody else's
            field has. By `refuse`, nothing may be sent.
        written: to be recorded once the changes are made.
        tds: with the changes, for the desired tables; None if the server was not asked, or
            `problem`.
        problem: why what it holds of fields cannot be kept when a file with the desired tables is
            published, as a phrase; None if it can be.
        broken: phrases for what of people names a column or calculation that goes.
        lost: what people made of these themselves, in words, by the first parts of their paths.
    """

    declared: Values
    found: Values
    changes: Mapping[FieldPath, str | None]
    kept: Mapping[FieldPath, str | None]
    conflicts: tuple[FieldPath, ...]
    written: Values
    tds: bytes | None = None
    problem: str | None = None
    broken: tuple[str, ...] = ()
    lost: Mapping[FieldPath, str] = field(default_factory=dict)

    @property
    def of_fields(self) -> Mapping[FieldPath, str | None]:
        """The changes that a file is to bring along."""
        return {path: value for path, value in self.changes.items() if not is_property(path)}

    @property
    def phrase(self) -> str:
        """The same in words: "metadata: caption of flights.delay"; "" for nothing."""
        changed = self.of_fields.items()
        named = ", ".join(shown(path) + " removed" * (value is None) for path, value in changed)
        return f"metadata: {named}" if named and not self.problem else ""

    @property
    def warnings(self) -> list[str]:
        """What a person should know of it, in sentences."""
        found = conflict_phrases(self)
        if self.problem and self.of_fields:
            found.append(f"What is declared of metadata cannot be set: {self.problem}")
        return found


def merge(
    declared: Values, written: Sequence[Values], found: Values, *, on_conflict: ConflictPolicy
) -> Merge:
    """Merge the declared metadata into what was found, without the loss of what people changed.

    Args:
        declared: the values that the declaration asks for.
        written: what we wrote last, the newest first; several if it is not known whether the last
            publish took effect. Right after a file without metadata was published, this is
            `found`: what the server made up is nobody's work.
        found: what is there.
        on_conflict: what becomes of a value that both sides changed.
    """
    changes: dict[FieldPath, str | None] = {}
    kept: dict[FieldPath, str | None] = {}
    conflicts: list[FieldPath] = []
    record: dict[FieldPath, str] = {}
    newest, *_ = written or [{}]
    parts = [_parts(values) for values in (declared, found, *(written or [{}]))]
    for unit in _units(declared, found, written):
        want, here, *pasts = (each.get(unit, {}) for each in parts)
        differing = {p: want.get(p) for p in {**here, **want} if want.get(p) != here.get(p)}
        taken = (*unit, TAKEN) in found
        is_theirs = any((THEIRS, *path) in newest for path in here)
        if here == want and not taken:
            record |= want | _theirs(want, written)
        elif here in pasts and not taken and (want or not is_theirs):
            changes |= differing
            record |= want
        elif not want and not (taken and unit[0] == "field"):
            # What a person changed, and we no longer want, is theirs from now on.
            kept |= {} if taken else here
        elif on_conflict == "accept" or (
            want == pasts[0] and _is_settled(unit, want, here, newest, taken=taken)
        ):
            # Whatever was declared before, only the person has changed it.
            kept |= {path: here.get(path) for path in differing}
            record |= want | _marks(want, newest) | _accepted(unit, want, here, taken=taken)
        else:
            is_whole = unit[:1] + unit[2:] == ("calculation",)
            conflicts.append((*unit, "formula") if is_whole else unit)
            is_set = on_conflict == "replace" and not taken
            changes |= differing if is_set else {}
            record |= want if is_set else pasts[0] | _marks(pasts[0], newest)
    if changes.get(CERTIFIED, "yes") is None and NOTE in found and NOTE not in changes:
        # A person's note cannot stay without our certification.
        kept.pop(NOTE, None)
        changes[NOTE] = None
        conflicts.append(NOTE)
    return Merge(declared, found, changes, kept, tuple(conflicts), record)


def _units(declared: Values, found: Values, written: Sequence[Values]) -> Iterable[FieldPath]:
    """What is decided at once: a value; or a calculation, if it is new, gone or somebody else's."""
    ours, theirs = {path[:2] for path in declared}, {path[:2] for path in found}
    taken = {path[:2] for path in found if path[2:] == (TAKEN,)}
    return dict.fromkeys(
        path[:2] if path[0] == "calculation" and path[:2] not in (ours & theirs) - taken else path
        for path in chain(declared, *written)
        if path[0] not in MARKS
    )


def _is_settled(
    unit: FieldPath, want: Values, here: Values, newest: Values, *, taken: bool
) -> bool:
    """Whether what a person has changed alone stays unreported."""
    mark = newest.get((ACCEPTED, *unit))
    if mark:
        return _accepted(unit, want, here, taken=taken) == {(ACCEPTED, *unit): mark}
    return not _is_reported(unit, taken=taken)


def _is_reported(unit: FieldPath, *, taken: bool) -> bool:
    """Whether a person's change is reported even if the declaration stays."""
    # Of who may do what, and of names that another field has.
    return taken or unit[0] == "permission"


def _accepted(unit: FieldPath, want: Values, here: Values, *, taken: bool) -> Values:
    """Return the mark of both values, where they would be reported again without it."""
    text = json.dumps([sorted(want.items()), sorted(here.items())])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {(ACCEPTED, *unit): digest} if want and _is_reported(unit, taken=taken) else {}


def _theirs(values: Values, written: Sequence[Values]) -> Values:
    """Marks for those of the values that are there, and that we have not written."""

    def is_ours(path: FieldPath, value: str) -> bool:
        return any(each.get(path) == value and (THEIRS, *path) not in each for each in written)

    return {(THEIRS, *path): "yes" for path, value in values.items() if not is_ours(path, value)}


def _marks(values: Values, before: Values) -> Values:
    """The marks that the values had before."""
    marks = ((THEIRS, *path) for path in values)
    return {mark: before[mark] for mark in marks if mark in before}


def _parts(values: Values) -> Mapping[FieldPath, Values]:
    """The values by their paths, and those of a calculation by its path, too."""
    parts: dict[FieldPath, dict[FieldPath, str]] = defaultdict(dict)
    for path, value in values.items():
        if path[0] in MARKS:
            continue
        for unit in (path, path[:2]):
            parts[unit][path] = value
    return parts


def is_property(path: FieldPath) -> bool:
    """Whether a value is of the data source itself, and not of what a `.tds` holds."""
    return path[path[0] in MARKS] in ("about", "tag", "permission")


def shown(path: FieldPath) -> str:
    """Return a path in words: "caption of flights.net_amount", "hierarchy Route"."""
    match path:
        case ("field", _, _, part):
            return f"{part} of {shown_field(path)}"
        case ("hierarchy", name, _):
            return f"hierarchy {name}"
        case ("tag", tag):
            return f'tag "{tag}"'
        case ("permission", group, capability):
            return f'{capability} of group "{group}"'
        case _:
            return " of ".join(reversed(path[1:]))


def shown_field(path: FieldPath) -> str:
    """Return the field of a path in words: "flights.net_amount", "Margin"."""
    match path:
        case ("field", table, column, *_):
            return column if table == EXTRACT_SCHEMA else f"{table}.{column}"
        case _:
            return path[1]


def shown_value(path: FieldPath, value: str | None) -> str:
    """Return a value in words: the fields of a hierarchy from the top down; "" for none."""
    return " > ".join(json.loads(value)) if value and path[0] == "hierarchy" else value or ""


def quoted(path: FieldPath, value: str | None) -> str:
    """Return a value in a sentence; of a description of the data source, its first line."""
    if value is None:
        return "none"
    text = shown_value(path, value)
    return f'"{text.splitlines()[0] if is_property(path) and text else text}"'


def change_phrases(merged: Merge) -> list[str]:
    """Such as 'caption of flights.delay becomes "Delay"'."""
    return [
        f"{shown(path)} becomes {quoted(path, value)}" for path, value in merged.changes.items()
    ]


def lost_phrases(merged: Merge) -> list[str]:
    """A sentence for each column or calculation with which work of people goes."""
    return [
        f"With {shown_field(path)} goes what people made of it: {work}"
        for path, work in merged.lost.items()
    ]


def conflict_phrases(merged: Merge) -> list[str]:
    """A phrase for each value that both the declaration and a person changed."""
    return [
        f"{shown(path)} is {quoted(path, merged.declared.get(path))} as declared, and "
        f"{quoted(path, merged.found.get(path))} on the server"
        + ", which is replaced" * (path in merged.changes)
        + _taken_phrase(merged, path)
        for path in merged.conflicts
    ]


def _taken_phrase(merged: Merge, path: FieldPath) -> str:
    name = merged.found.get((*path, TAKEN))
    if (*path[:2], TAKEN) in merged.found:
        name = path[1]
    return f', where another field has the name "{name}"' if name else ""


def metadata_rows(declared: Values, merged: Merge) -> list[tuple[str, str, str, str]]:
    """Return what is declared beside what is there, and what becomes of it, as rows of a table."""
    fates = dict.fromkeys(merged.changes, "to be published")
    fates |= dict.fromkeys(merged.kept, "edited, stays")
    for path in merged.conflicts:
        fates[path] = f"conflict, {'to be replaced' if path in merged.changes else 'stays'}"
    return [
        (
            shown(path),
            shown_value(path, declared.get(path)),
            shown_value(path, merged.found.get(path)),
            fates.get(path, ""),
        )
        for path in dict.fromkeys([*declared, *fates])
    ]

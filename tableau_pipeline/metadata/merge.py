"""Do a three-way merge of metadata: values declared, last written, and on the server."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from tableau_pipeline.hyper.types import EXTRACT_SCHEMA

# Paths of fields are like ("field", table, column, "caption"), ("calculation", "Margin", "formula")
# or ("hierarchy", "Route", "fields"); `table` is the name in the published file. Paths of the data
# source itself are like ("about", "owner"), ("tag", "finance") or ("permission", "Analysts",
# "Read").
FieldPath = tuple[str, ...]
DESCRIPTION, OWNER = ("about", "description"), ("about", "owner")
CERTIFIED, NOTE = ("about", "certified"), ("about", "certification note")
# A value that is absent has Tableau's default.
Values = Mapping[FieldPath, str]
OnConflict = Literal["keep", "replace", "refuse"]
# "accept" keeps a user's value, and later runs do not report it.
ConflictPolicy = OnConflict | Literal["accept"]
# Besides values, `Values` may contain marks: entries that state a fact about a value. This prefix
# of a path marks a value that a user had set on the server before the value was declared.
SET_BY_USER = "theirs"
# The prefix of another mark: a run has accepted both the declared value and the different value on
# the server. The value of the mark is a digest of both.
ACCEPTED = "accepted"
MARKS = frozenset({SET_BY_USER, ACCEPTED})
# The suffix of a mark: a user's field already has the name that a calculation or caption declares.
TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Merge:
    """The result of a merge, including the edited `.tds`.

    Attributes:
        declared: the declared values.
        found: the values on the server.
        changes: the values to set; None removes a value.
        kept: users' values that stay without a conflict; None for a value that a user removed.
        conflicts: values to report, because both the declaration and a user changed them. A
            permission, or a name that a user's field has, may be a conflict even if only a user
            changed it. The policy `replace` adds conflicts to the changes, except such names. If
            there are conflicts, the policy `refuse` forbids sending anything.
        written: the values to record as last written when the changes have been made.
        tds: the `.tds` with the changes and with the tables to publish; None if the `.tds` was not
            read from the server, or if there is a `problem`.
        problem: a phrase that explains why publishing these tables would lose the server's metadata
            of fields; None if nothing would be lost.
        broken: phrases that name users' objects which refer to a removed column or calculation.
        lost: phrases that name users' edits of removed columns and calculations; a key is the start
            of a path, such as ("field", table, column).
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
        """The changes to make in the `.tds`."""
        return {path: value for path, value in self.changes.items() if not is_property(path)}

    @property
    def phrase(self) -> str:
        """The changes to make in fields: "metadata: caption of flights.delay"; "" if none."""
        changed = self.of_fields.items()
        listed = ", ".join(shown(path) + " removed" * (value is None) for path, value in changed)
        return f"metadata: {listed}" if listed and not self.problem else ""

    @property
    def warnings(self) -> list[str]:
        """Warnings about conflicts, and about metadata that cannot be set."""
        warnings = conflict_phrases(self)
        if self.problem and self.of_fields:
            warnings.append(f"The declared metadata cannot be set: {self.problem}")
        return warnings


def merge(
    declared: Values, written: Sequence[Values], found: Values, *, on_conflict: ConflictPolicy
) -> Merge:
    """Merge declared metadata into the metadata on the server, and keep users' edits.

    Args:
        declared: the declared values.
        written: the sets of values written last, the newest first. There are several sets if it is
            unknown whether the last publish took effect. Right after publishing a file without
            metadata, pass `found` here, too: values set by the server itself are not users' edits.
        found: the values on the server.
        on_conflict: how to treat a value that both the declaration and a user changed.
    """
    changes: dict[FieldPath, str | None] = {}
    kept: dict[FieldPath, str | None] = {}
    conflicts: list[FieldPath] = []
    record: dict[FieldPath, str] = {}
    newest, *_ = written or [{}]
    parts = [_parts(values) for values in (declared, found, *(written or [{}]))]
    for unit in _units(declared, found, written):
        want, here, *before = (side.get(unit, {}) for side in parts)
        differing = _differences(want, here)
        taken = (*unit, TAKEN) in found
        was_users = any((SET_BY_USER, *path) in newest for path in here)
        if here == want and not taken:
            record |= want | _user_marks(want, written)
        elif here in before and not taken and (want or not was_users):
            changes |= differing
            record |= want
        elif not want and not (taken and unit[0] == "field"):
            # A user edited the value, which is no longer declared: keep it and stop managing it.
            kept |= {} if taken else here
        elif on_conflict == "accept" or (
            want == before[0] and _is_settled(unit, want, here, newest, taken=taken)
        ):
            # Keep the user's value: only the user changed it, or the run accepts it.
            kept |= {path: here.get(path) for path in differing}
            record |= want | _marks(want, newest) | _accepted_mark(unit, want, here, taken=taken)
        else:
            is_whole = unit[:1] + unit[2:] == ("calculation",)
            conflicts.append((*unit, "formula") if is_whole else unit)
            is_set = on_conflict == "replace" and not taken
            changes |= differing if is_set else {}
            record |= want if is_set else before[0] | _marks(before[0], newest)
    if changes.get(CERTIFIED, "yes") is None and NOTE in found and NOTE not in changes:
        # Remove the user's note as well, because a note cannot remain without the certification.
        kept.pop(NOTE, None)
        changes[NOTE] = None
        conflicts.append(NOTE)
    return Merge(declared, found, changes, kept, tuple(conflicts), record)


def _differences(want: Values, here: Values) -> Mapping[FieldPath, str | None]:
    """Return the changes that turn values `here` into values `want`; None removes a value."""
    paths = {**here, **want}
    return {path: want.get(path) for path in paths if want.get(path) != here.get(path)}


def _units(declared: Values, found: Values, written: Sequence[Values]) -> Iterable[FieldPath]:
    """Return the paths of the units of merging, in order.

    A unit is a set of values that are merged together, usually only one value. A calculation with
    all its values is one unit in three cases: it is only declared; it is only on the server; or a
    user's field has its name.
    """
    shared = {path[:2] for path in declared} & {path[:2] for path in found}
    taken = {path[:2] for path in found if path[2:] == (TAKEN,)}
    return dict.fromkeys(
        path[:2] if path[0] == "calculation" and path[:2] not in shared - taken else path
        for path in chain(declared, *written)
        if path[0] not in MARKS
    )


def _is_settled(
    unit: FieldPath, want: Values, here: Values, newest: Values, *, taken: bool
) -> bool:
    """Whether a user's change of a value needs no report, if the declaration is unchanged."""
    mark = newest.get((ACCEPTED, *unit))
    if mark:
        return _accepted_mark(unit, want, here, taken=taken) == {(ACCEPTED, *unit): mark}
    return not _is_reported(unit, taken=taken)


def _is_reported(unit: FieldPath, *, taken: bool) -> bool:
    """Whether a user's change is reported even if the declaration is unchanged."""
    # Report permissions. Also report calculations and captions if another field has their name.
    return taken or unit[0] == "permission"


def _accepted_mark(unit: FieldPath, want: Values, here: Values, *, taken: bool) -> Values:
    """Return a mark that a run has accepted both values; {} if the values need no report."""
    text = json.dumps([sorted(want.items()), sorted(here.items())])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {(ACCEPTED, *unit): digest} if want and _is_reported(unit, taken=taken) else {}


def _user_marks(values: Values, written: Sequence[Values]) -> Values:
    """Return a mark for each value that is on the server as declared, though no refresh set it."""

    def is_ours(path: FieldPath, value: str) -> bool:
        return any(side.get(path) == value and (SET_BY_USER, *path) not in side for side in written)

    return {
        (SET_BY_USER, *path): "yes" for path, value in values.items() if not is_ours(path, value)
    }


def _marks(values: Values, before: Values) -> Values:
    """Return the marks SET_BY_USER of these values, if `before` contains them."""
    marks = ((SET_BY_USER, *path) for path in values)
    return {mark: before[mark] for mark in marks if mark in before}


def _parts(values: Values) -> Mapping[FieldPath, Values]:
    """Return the values of each possible unit: a whole path, or the first two parts of paths."""
    parts: dict[FieldPath, dict[FieldPath, str]] = defaultdict(dict)
    for path, value in values.items():
        if path[0] in MARKS:
            continue
        for unit in (path, path[:2]):
            parts[unit][path] = value
    return parts


def is_property(path: FieldPath) -> bool:
    """Whether a value is a property of the data source itself, and so not in its `.tds`."""
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
    """Return a value in words; list the fields of a hierarchy from the top down; "" for None."""
    return " > ".join(json.loads(value)) if value and path[0] == "hierarchy" else value or ""


def quoted(path: FieldPath, value: str | None) -> str:
    """Return a value in quotes; cut the description of a data source after the first line."""
    if value is None:
        return "none"
    text = shown_value(path, value)
    return f'"{text.splitlines()[0] if is_property(path) and text else text}"'


def change_phrases(merged: Merge) -> list[str]:
    """Return phrases such as 'caption of flights.delay becomes "Delay"'."""
    return [
        f"{shown(path)} becomes {quoted(path, value)}" for path, value in merged.changes.items()
    ]


def lost_phrases(merged: Merge) -> list[str]:
    """Return a sentence for each removed column or calculation with users' edits."""
    return [
        f"Removing {shown_field(path)} also removes what people made of it: {work}"
        for path, work in merged.lost.items()
    ]


def conflict_phrases(merged: Merge) -> list[str]:
    """Return a phrase for each conflict, with the declared value and the value on the server."""
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
    """Return rows of (path, declared value, value on the server, result), all in words."""
    results = dict.fromkeys(merged.changes, "to be published")
    results |= dict.fromkeys(merged.kept, "edited, stays")
    for path in merged.conflicts:
        results[path] = f"conflict, {'to be replaced' if path in merged.changes else 'stays'}"
    return [
        (
            shown(path),
            shown_value(path, declared.get(path)),
            shown_value(path, merged.found.get(path)),
            results.get(path, ""),
        )
        for path in dict.fromkeys([*declared, *results])
    ]

"""Codes for the outcome of a refresh: statuses, refusals, and reasons for a full publish."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The result of a refresh, or the state of a data source; the most urgent statuses come first.

    HELD: refreshes skip the data source until a person releases it. GONE: the server no longer has
    the data source. DIFFERS: the rows on the server differ from the rows that the last refresh
    published. DRIFTED: the data source has changed, or may have changed, since the last refresh.
    LATE: the last refresh is older than the declared `freshness` allows. NEVER: no refresh has
    published the data source. FRESH: the last refresh succeeded. EQUAL: the last refresh succeeded,
    and a later comparison found the same rows. MOVE: only the name or the project changes.
    METADATA: only the metadata change. REMOVED: the declaration was removed. UNKNOWN: the state
    cannot be determined. UNCHANGED: a refresh has nothing to send; or, in an audit, the data source
    shows no change, but its rows were not compared. FOREIGN: another deployment publishes the data
    source, or this deployment does so under another key. UNDECLARED: the data source has the tag of
    a pipeline, but no declaration here.
    """

    HELD = "held"
    REFUSED = "refused"
    FAILED = "failed"
    GONE = "gone"
    DIFFERS = "rows differ"
    DRIFTED = "drifted"
    LATE = "late"
    NEVER = "never refreshed"
    RUNNING = "refreshing"
    FRESH = "fresh"
    EQUAL = "equal"
    UPDATE = "update"
    PUBLISH = "publish"
    MOVE = "move"
    METADATA = "metadata"
    REMOVED = "removed"
    UNKNOWN = "unknown"
    UNCHANGED = "unchanged"
    FOREIGN = "published by another deployment"
    UNDECLARED = "not declared here"


# The statuses of a refresh that ended early.
STOPPED = (Status.REFUSED, Status.FAILED)


class Accept(StrEnum):
    """The refusals that a run may accept once."""

    SHRINK = "shrink"
    CHANGE = "change"
    SCHEMA = "schema"
    OVERWRITE = "overwrite"
    TAKEOVER = "takeover"
    CHECKS = "checks"
    METADATA = "metadata"
    FILTER = "filter"


class Check(StrEnum):
    """The checks before a refresh sends anything."""

    GUARD = "guard"
    KEYS = "keys"
    SCHEMA = "schema"


class Code(StrEnum):
    """The kind of a problem; `docs/troubleshooting.md` has a row for each kind.

    OTHER means a code of another release, or an error without a code.
    """

    # A user must decide.
    TOO_FEW_ROWS = "too few rows"
    ROWS_LOST = "rows lost"
    ROWS_CHANGED = "too many rows changed"
    ROWS_NOT_KNOWN = "published rows not known"
    ROWS_REJECTED = "rows rejected by a check"
    SCHEMA_CHANGED = "schema changed"
    METADATA_CONFLICT = "metadata changed by both"
    WORK_WOULD_GO = "work of people would go"
    FILTER_GONE = "filter of rows gone"
    FILTER_LOST = "filter of rows would go"
    FILTER_MISSING = "no filter of rows"
    ENTITLEMENTS = "entitlements not valid"
    SEVERAL_TAGGED = "several data sources tagged"
    OTHER_ENVIRONMENT = "published by another environment"
    OTHER_DEPLOYMENT = "published by another deployment"
    OTHER_KEY = "published under another key"
    NOT_PUBLISHED_HERE = "not published by this pipeline"
    STRAY = "tagged elsewhere"
    NAME_TAKEN = "name taken"
    NOT_APPROVED = "not approved"
    PLAN_MOVED = "not as planned"
    # Data or declarations must be corrected.
    DECLARATION = "declaration not valid"
    KEYS = "keys do not identify rows"
    MODEL = "model does not fit the declaration"
    NO_SNAPSHOT = "no snapshot of a model"
    SNAPSHOT = "snapshot cannot be read"
    LAKE = "lake table cannot be read"
    FILES = "files cannot be read exactly"
    BATCH = "action batch not valid"
    TOO_LARGE = "file too large"
    PUBLISHED_VERSION = "published version not stored"
    NOT_PUBLISHED = "nothing published to start from"
    NO_VERSION = "no such published version"
    # The host or deployment must be corrected.
    SETTING = "setting not valid"
    NOT_INSTALLED = "not installed"
    PROJECT = "no such project or deployment"
    RECORD = "record cannot be read"
    IN_USE = "in use by another process"
    # The server refuses.
    CREDENTIALS = "sign-in refused"
    NOT_ON_SITE = "not on the site"
    NO_UPDATES = "server takes no updates"
    SERVER = "refused by the server"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason why a refresh sends nothing until a user solves or accepts a problem.

    Attributes:
        problem: a description of the problem, for users; the wording may change between releases.
        accept: the kind of refusal that a run may accept in order to proceed; None if no run can.
        check: the check that found the problem; None if the problem was found without a check.
        table: the table with the problem; None if the problem concerns several tables or none.
        column: the column with the problem; None if the problem concerns several columns or none.
        remedy: the steps that solve the problem, for users; "" if `problem` contains them.
        details: the facts of the problem as values, such as numbers of rows.
    """

    problem: str
    code: Code
    accept: Accept | None = None
    check: Check | None = None
    table: str | None = None
    column: str | None = None
    remedy: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The problem and the remedy."""
        return f"{self.problem}. {self.remedy}" if self.remedy else self.problem

    def as_json(self) -> dict[str, Any]:
        """Return the fields that have a value, in the form for records."""
        # Convert enumerations to text, because Dagster cannot store enumerations.
        return {
            name: str(value) if isinstance(value, StrEnum) else value
            for name, value in asdict(self).items()
            if value
        }

    @classmethod
    def of_json(cls, recorded: Mapping[str, Any]) -> "Refusal":
        """Read a result of `as_json`; a code of another release becomes OTHER."""
        code, accept, check = (recorded.get(name) for name in ("code", "accept", "check"))
        return cls(
            problem=recorded.get("problem", ""),
            code=Code(code) if code in [*Code] else Code.OTHER,
            accept=Accept(accept) if accept in [*Accept] else None,
            check=Check(check) if check in [*Check] else None,
            table=recorded.get("table"),
            column=recorded.get("column"),
            remedy=recorded.get("remedy", ""),
            details=recorded.get("details", {}),
        )


class Doubt(StrEnum):
    """The kinds of reasons to doubt that the published content is as recorded."""

    NO_RECORD = "no record"
    OTHERS = "changed by others"
    OUTCOME = "outcome unknown"
    FAILED = "request failed"
    IN_PART = "sent in part"
    BY_HAND = "changed by hand"
    DIFFERS = "differs from its models"
    NOT_SEEN = "not seen since"


@dataclass(frozen=True, slots=True)
class Distrust:
    """The reason why no update may build on the published content, and a full publish is needed.

    Attributes:
        detail: the reason as a phrase, for users.
    """

    code: Doubt
    detail: str

    def __str__(self) -> str:
        return self.detail

    def and_also(self, other: "Distrust") -> "Distrust":
        """Return both reasons as one; if they are equal, return this reason."""
        return self if other == self else Distrust(self.code, f"{self}, and {other}")


def in_words(refusals: Iterable[Refusal]) -> str:
    """Return the texts of refusals, one per line."""
    return "\n".join(refusal.text for refusal in refusals)


def sentence(phrase: str) -> str:
    """Return a phrase with its first letter capitalized."""
    return phrase[:1].upper() + phrase[1:]


def by_check(refusals: Iterable[Refusal]) -> Mapping[Check, str]:
    """Return the texts of refusals that have a check; the keys are the failed checks."""
    texts_by_check: dict[Check, list[str]] = {}
    for refusal in refusals:
        if refusal.check:
            texts_by_check.setdefault(refusal.check, []).append(refusal.text)
    return {check: "\n".join(texts) for check, texts in texts_by_check.items()}


def accepts_of(refusals: Iterable[Refusal]) -> list[str]:
    """Return what a run must accept to override all refusals; [] if no run can accept them all."""
    accepts = [refusal.accept for refusal in refusals]
    return [] if None in accepts else list(dict.fromkeys(map(str, accepts)))

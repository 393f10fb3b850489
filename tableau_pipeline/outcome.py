"""What comes of a refresh, as values that programs read, beside the words that people read."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """What a refresh comes to, and how a data source is: what needs people comes first.

    GONE: the server no longer has it. DIFFERS: its rows are not those that the last refresh left.
    DRIFTED: it is not what that left, or this is not certain. NEVER: no refresh has published it.
    UNKNOWN: nothing tells. FRESH: its last refresh ended well. EQUAL: so it did, and its rows were
    compared since. MOVE and METADATA: only its name, its project or its metadata change.
    UNCHANGED: nothing does, as far as time stamps tell. FOREIGN: another deployment publishes it.
    UNDECLARED: it has the tag of a pipeline, and no declaration here.
    """

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


# Those by which a refresh ends early.
STOPPED = (Status.REFUSED, Status.FAILED)


class Accept(StrEnum):
    """What a run may accept once instead of refusing it."""

    SHRINK = "shrink"
    SCHEMA = "schema"
    OVERWRITE = "overwrite"
    TAKEOVER = "takeover"
    CHECKS = "checks"
    METADATA = "metadata"


class Check(StrEnum):
    """The checks before anything is sent."""

    GUARD = "guard"
    KEYS = "keys"
    SCHEMA = "schema"


class Code(StrEnum):
    """What is wrong: `docs/troubleshooting.md` has a row for each.

    OTHER is a code that only another release knows.
    """

    # What people have to decide.
    TOO_FEW_ROWS = "too few rows"
    ROWS_LOST = "rows lost"
    ROWS_NOT_KNOWN = "published rows not known"
    ROWS_REJECTED = "rows rejected by a check"
    SCHEMA_CHANGED = "schema changed"
    METADATA_CONFLICT = "metadata changed by both"
    WORK_WOULD_GO = "work of people would go"
    SEVERAL_TAGGED = "several data sources tagged"
    OTHER_ENVIRONMENT = "published by another environment"
    OTHER_DEPLOYMENT = "published by another deployment"
    OTHER_KEY = "published under another key"
    NOT_PUBLISHED_HERE = "not published by this pipeline"
    STRAY = "tagged elsewhere"
    NAME_TAKEN = "name taken"
    # What is to be corrected, by who declares, produces or reads data.
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
    # What is to be corrected where it runs.
    SETTING = "setting not valid"
    NOT_INSTALLED = "not installed"
    PROJECT = "no such project or deployment"
    RECORD = "record cannot be read"
    IN_USE = "in use by another process"
    # What the server says.
    CREDENTIALS = "sign-in refused"
    NOT_ON_SITE = "not on the site"
    NO_UPDATES = "server takes no updates"
    SERVER = "refused by the server"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason to do nothing until a person decides.

    Attributes:
        text: what is wrong and what to do, for people; a later release may say it otherwise.
        accept: what a run may accept to go on all the same; None if that is no way out.
        check: the check that found it; None if none did.
        table: the table that it is about; None if it is about no single one.
    """

    text: str
    code: Code
    accept: Accept | None = None
    check: Check | None = None
    table: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return all but what is None, to be recorded."""
        # Dagster stores no enumerations.
        return {name: str(value) for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of_json(cls, recorded: Mapping[str, str]) -> "Refusal":
        """Read what `as_json` has made; a code of another release counts as OTHER."""
        code, accept, check = (recorded.get(name) for name in ("code", "accept", "check"))
        return cls(
            text=recorded.get("text", ""),
            code=Code(code) if code in [*Code] else Code.OTHER,
            accept=Accept(accept) if accept in [*Accept] else None,
            check=Check(check) if check in [*Check] else None,
            table=recorded.get("table"),
        )


class Doubt(StrEnum):
    """Why it is not known what a data source holds, or whether all of it is ours."""

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
    """A reason why no update may build on what is published: everything is published instead.

    Attributes:
        detail: the same as a phrase, for people.
    """

    code: Doubt
    detail: str

    def __str__(self) -> str:
        return self.detail

    def and_also(self, other: "Distrust") -> "Distrust":
        """Return both; if they are equal, one."""
        return self if other == self else Distrust(self.code, f"{self}, and {other}")


def in_words(refusals: Iterable[Refusal]) -> str:
    """Return a line for each."""
    return "\n".join(each.text for each in refusals)


def sentence(phrase: str) -> str:
    """Return a phrase with a capital letter."""
    return phrase[:1].upper() + phrase[1:]


def by_check(refusals: Iterable[Refusal]) -> Mapping[Check, str]:
    """Return what each failed check found."""
    found: dict[Check, list[str]] = {}
    for each in refusals:
        if each.check:
            found.setdefault(each.check, []).append(each.text)
    return {check: "\n".join(texts) for check, texts in found.items()}


def accepts_of(refusals: Iterable[Refusal]) -> list[str]:
    """Return what refusals ask to be accepted; each once."""
    return list(dict.fromkeys(str(each.accept) for each in refusals if each.accept))

"""Faults on demand: make a sandbox misbehave as servers and networks do.

Faults of calls. `method` and `path` select the calls; "*" and "**" match any. Paths are relative to
/api/VERSION/; "*" or a name in braces matches one part of a path. `nth` is the number of
the first call to hit, counted from now on. `times` calls are hit (null: all further calls):
  {"kind": "refuse", "status": 429, "retry_after": 3}  or 401, 500, 503, 504; the call has no effect
  {"kind": "drop", "when": "before"}                   or "after" the call has taken effect
  {"kind": "delay", "seconds": 2}                      takes effect at once; the answer is late
  {"kind": "expire_sessions", "user": "alice"}         sessions end before the call; null: all users
  {"kind": "cut", "bytes": 20}                         the answer ends as if it were complete

Faults of queries by VizQL Data Service, which is at the path vizql-data-service/query-datasource:
  {"kind": "break_rows"}                               an error after the first row, status 200
  {"kind": "hide_rows", "rows": 2}                     hides rows from the user, in all queries
  {"kind": "stale_rows"}                               data as they were before their last change

Faults of jobs. `nth` and `times` count jobs, and `job_kind` is the kind shown in lists of jobs:
  {"kind": "fail_job", "notes": "Out of memory."}      or null: the job fails without notes
  {"kind": "slow_job", "seconds": 60}                  additional time in progress
  {"kind": "hold_jobs"}                                jobs stay queued until the fault is cleared

The list of faults keeps used-up faults, with the number of times that each has `fired`. You can
advance the clock of the sandbox, which sessions, uploads and jobs use.

In tests, call sandbox.control.add(Refuse(status=429, retry_after=3, method="PUT", nth=2)).fired,
sandbox.advance(60), held_jobs(), wait_until_idle(), wait_until_running() and quirks(replace=...).
With --control, use HTTP from this machine (without --control, the answer is 404003):
  GET /control            the time of the clock, and all faults
  POST /control/faults    adds a fault as above (Content-Type: application/json)
  DELETE /control/faults  clears all faults; /control/faults/NUMBER clears one
  POST /control/clock     {"advance": 3600}
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_Count = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class CallFault:
    """A fault of calls of the REST API or of VizQL Data Service.

    Attributes:
        method: the HTTP verb; "*" matches any verb.
        path: relative to `/api/{version}/`; "*" or `{name}` matches one part of the path. The whole
            pattern "**" matches any path.
        nth: the number of the first matching call that is hit, counted from 1.
        times: the number of matching calls that are hit from then on; None hits all matching calls.
    """

    method: str = "*"
    path: str = "**"
    nth: _Count = 1
    times: _Count | None = 1


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Refuse(CallFault):
    """The sandbox refuses the call, which has no effect.

    Attributes:
        status: the status of the answer; 401 means that the session has ended.
        retry_after: seconds after which the client may try again.
    """

    kind: Literal["refuse"] = "refuse"
    status: Literal[401, 429, 500, 503, 504]
    retry_after: Annotated[int, Field(ge=0)] | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Drop(CallFault):
    """The connection breaks before or after the call takes effect."""

    kind: Literal["drop"] = "drop"
    when: Literal["before", "after"]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Delay(CallFault):
    """The call takes effect at once, but the answer is late."""

    kind: Literal["delay"] = "delay"
    seconds: _Seconds


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ExpireSessions(CallFault):
    """All sessions, or only the sessions of one user, end just before the call."""

    kind: Literal["expire_sessions"] = "expire_sessions"
    user: str | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Cut(CallFault):
    """The answer ends after some bytes, as if it were complete."""

    kind: Literal["cut"] = "cut"
    bytes: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class QueryFault(CallFault):
    """A fault of queries by VizQL Data Service."""

    path: str = "vizql-data-service/query-datasource"


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class BreakRows(QueryFault):
    """The answer has the status 200, its first row, and an error in place of the other rows."""

    kind: Literal["break_rows"] = "break_rows"


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class HideRows(QueryFault):
    """The user may not see some rows of each table, so queries omit these rows."""

    kind: Literal["hide_rows"] = "hide_rows"
    rows: _Count
    times: _Count | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class StaleRows(QueryFault):
    """The answer shows the data from before the last change since the fault was armed."""

    kind: Literal["stale_rows"] = "stale_rows"


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class JobFault:
    """A fault of jobs when they run.

    Attributes:
        job_kind: the kind shown in lists of jobs; None matches any kind.
        nth: the number of the first matching job that is hit, counted from 1.
        times: the number of matching jobs that are hit from then on; None hits all matching jobs.
    """

    job_kind: str | None = None
    nth: _Count = 1
    times: _Count | None = 1


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class FailJob(JobFault):
    """The job fails without effect, with the given notes; None means no notes."""

    kind: Literal["fail_job"] = "fail_job"
    notes: str | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SlowJob(JobFault):
    """The job stays in progress for additional seconds before it takes effect."""

    kind: Literal["slow_job"] = "slow_job"
    seconds: _Seconds


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class HoldJobs:
    """Jobs of a kind stay queued until the fault is cleared; None holds jobs of all kinds."""

    kind: Literal["hold_jobs"] = "hold_jobs"
    job_kind: str | None = None


Fault = (
    Refuse
    | Drop
    | Delay
    | ExpireSessions
    | Cut
    | BreakRows
    | HideRows
    | StaleRows
    | FailJob
    | SlowJob
    | HoldJobs
)
_FAULT: TypeAdapter[Fault] = TypeAdapter(Annotated[Fault, Field(discriminator="kind")])


def read_fault(text: str | bytes) -> Fault:
    """Parse a fault from JSON.

    Raises:
        ValueError: the text is not a fault; the message states the problem.
    """
    return _FAULT.validate_json(text)


def write_fault(fault: Fault) -> dict[str, Any]:
    """Convert a fault to a JSON object."""
    return _FAULT.dump_python(fault)

"""The kinds of faults, each a plain record that can be written as JSON."""

from typing import Annotated, Any, Literal, Protocol

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_Count = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(ge=0)]


class Counted(Protocol):
    """Whatever hits some of the calls or jobs that it meets."""

    @property
    def nth(self) -> int:
        """The first one that is hit, counted from 1."""
        ...

    @property
    def times(self) -> int | None:
        """How many are hit from then on; None for all."""
        ...


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class CallFault:
    """Something that happens to calls of the REST API.

    Attributes:
        method: HTTP verb; "*" is any.
        path: below `/api/{version}/`; "*" or `{name}` is any one part, "**" alone any path.
        nth: the first matching call that is hit, counted from 1.
        times: how many matching calls are hit from then on; None for all.
    """

    method: str = "*"
    path: str = "**"
    nth: _Count = 1
    times: _Count | None = 1


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Refuse(CallFault):
    """The call is refused, whatever it asks for.

    Attributes:
        status: of the answer; 401 says that the session has ended.
        retry_after: seconds after which the client is asked to try again.
    """

    kind: Literal["refuse"] = "refuse"
    status: Literal[401, 429, 500, 503, 504]
    retry_after: Annotated[int, Field(ge=0)] | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Drop(CallFault):
    """The connection breaks, before or after the work of the call is done."""

    kind: Literal["drop"] = "drop"
    when: Literal["before", "after"]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Delay(CallFault):
    """The work is done at once, the answer comes late."""

    kind: Literal["delay"] = "delay"
    seconds: _Seconds


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Throttle(CallFault):
    """The body of the call is taken in no faster than this."""

    kind: Literal["throttle"] = "throttle"
    bytes_per_second: _Count


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ExpireSessions(CallFault):
    """All sessions end just before the call, or those of the user of this name."""

    kind: Literal["expire_sessions"] = "expire_sessions"
    user: str | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class JobFault:
    """Something that happens to jobs when they are executed.

    Attributes:
        job_kind: as lists of jobs call it; None is any.
        nth: the first matching job that is hit, counted from 1.
        times: how many matching jobs are hit from then on; None for all.
    """

    job_kind: str | None = None
    nth: _Count = 1
    times: _Count | None = 1


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class FailJob(JobFault):
    """The job fails without effect, with these notes; None leaves none at all."""

    kind: Literal["fail_job"] = "fail_job"
    notes: str | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SlowJob(JobFault):
    """The job stays in progress that much longer before it takes effect."""

    kind: Literal["slow_job"] = "slow_job"
    seconds: _Seconds


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class HoldJobs:
    """Jobs stay queued until the fault is cleared; None holds all kinds."""

    kind: Literal["hold_jobs"] = "hold_jobs"
    job_kind: str | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ReorderJobs:
    """Queued jobs are not taken oldest first, until the fault is cleared."""

    kind: Literal["reorder_jobs"] = "reorder_jobs"
    order: Literal["newest", "random"]


Fault = (
    Refuse | Drop | Delay | Throttle | ExpireSessions | FailJob | SlowJob | HoldJobs | ReorderJobs
)
_FAULT: TypeAdapter[Fault] = TypeAdapter(Annotated[Fault, Field(discriminator="kind")])


def read_fault(text: str | bytes) -> Fault:
    """A fault written as JSON.

    Raises:
        ValueError: it is none; the message says what is wrong.
    """
    return _FAULT.validate_json(text)


def write_fault(fault: Fault) -> dict[str, Any]:
    """A fault as a JSON object."""
    return _FAULT.dump_python(fault)

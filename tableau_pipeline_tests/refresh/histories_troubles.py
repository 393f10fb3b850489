"""What goes wrong during a refresh."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tableau_pipeline.sandbox.control.faults import Drop, ExpireSessions, FailJob, Refuse, SlowJob
from tableau_pipeline_tests.refresh.crashes import KilledError

SLOW_SECONDS = 20
_CALLS = [
    ("PATCH", "sites/*/datasources/*/data"),
    ("PATCH", "sites/*/datasources/*/data"),
    ("POST", "sites/*/datasources"),
    ("POST", "sites/*/datasources"),
    ("GET", "sites/*/jobs/*"),
    ("PUT", "sites/*/jobs/*"),
    ("GET", "sites/*/jobs"),
    ("GET", "sites/*/datasources/*"),
    ("GET", "sites/*/datasources"),
    ("*", "sites/*/fileUploads"),
    ("PUT", "sites/*/datasources/*/tags"),
    ("GET", "sites/*/datasources/*/content"),
    ("*", "**"),
]


@dataclass(frozen=True)
class Trouble:
    """Attributes:
    dies: before this call to the outside, counted from the first intent on if `late`.
    released: before this call, jobs that were held come to their end.
    faults: of calls and jobs, for the time of one refresh.
    """

    dies: int | None = None
    late: bool = True
    released: int | None = None
    faults: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.faults) or self.dies is not None


NONE = Trouble()


class Calls:
    """Counts the calls to the outside, and troubles them.

    Attributes:
        trace: those that were made.
    """

    def __init__(self, trouble: Trouble, release: Callable[[], None]) -> None:
        self._trouble = trouble
        self._release = release
        self.trace: list[str] = []

    def about_to(self, name: str) -> None:
        """Count one, unless it is never made."""
        if self._trouble.released == len(self.trace):
            self._release()
        if self._trouble.dies is not None and self._trouble.dies <= self._so_far(name):
            raise KilledError(" ".join(self.trace))
        self.trace.append(name)

    def _so_far(self, name: str) -> int:
        if not self._trouble.late:
            return len(self.trace)
        if "record" not in self.trace:
            return 0 if name == "record" else -1
        return len(self.trace) - self.trace.index("record")


class Through:
    """Stands in front of a journal or a server."""

    def __init__(self, behind: Any, calls: Calls, after: Callable[[str], None]) -> None:
        self._behind = behind
        self._calls = calls
        self._after = after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._behind, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._calls.about_to(name)
            answer = found(*args, **kwargs)
            self._after(name)
            return answer

        return call


def _of_calls(kind: Any, **more: Any) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda call, nth, times, **rest: kind(
            method=call[0], path=call[1], nth=nth, times=times, **rest
        ),
        st.sampled_from(_CALLS),
        st.sampled_from([1, 1, 1, 2, 3]),
        st.sampled_from([1, 1, 3]),
        **more,
    )


faults = st.one_of(
    _of_calls(Refuse, status=st.sampled_from([401, 429, 500, 503, 504])),
    _of_calls(Drop, when=st.sampled_from(["before", "after", "after"])),
    _of_calls(ExpireSessions),
    st.builds(FailJob, notes=st.sampled_from([None, "Out of memory."])),
    st.just(SlowJob(seconds=SLOW_SECONDS)),
)
_released = st.none() | st.integers(0, 25)
deaths = st.builds(
    Trouble,
    dies=st.integers(0, 7),
    released=_released,
) | st.builds(Trouble, dies=st.integers(0, 20), late=st.just(False), released=_released)
failures = st.builds(
    Trouble, faults=st.lists(faults, min_size=1, max_size=2).map(tuple), released=_released
)
releases = st.builds(Trouble, released=st.integers(0, 25))

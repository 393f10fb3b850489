"""Wrappers of a server or a journal, which change some calls and pass all others on."""

from collections.abc import Callable, Sequence
from typing import Any


class Proxy:
    """Passes everything that a subclass does not define on to the wrapped object."""

    def __init__(self, behind: Any) -> None:
        self.behind = behind

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.behind, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self.before(name, args)
            answer = found(*args, **kwargs)
            self.after(name, answer)
            return answer

        return call

    def before(self, name: str, args: Sequence[Any]) -> None:
        """Called right before a call is passed on."""

    def after(self, name: str, answer: Any) -> None:
        """Called right after a call was answered."""


class At(Proxy):
    """A server with one event: right before the nth call of a name, or right after that call."""

    def __init__(
        self,
        behind: Any,
        call: str,
        happens: Callable[[], object],
        *,
        nth: int = 1,
        when: str = "before",
    ) -> None:
        super().__init__(behind)
        self._call, self._happens, self._left, self._when = call, happens, nth, when

    def before(self, name: str, args: Sequence[Any]) -> None:
        self._left -= name == self._call
        self._meet(name, "before")

    def after(self, name: str, answer: Any) -> None:
        self._meet(name, "after")

    def _meet(self, name: str, when: str) -> None:
        if (name, when, self._left) == (self._call, self._when, 0):
            self._left = -1
            self._happens()

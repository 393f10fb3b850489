"""Stand-ins for a server or a journal, which change what a test is about and hand on the rest."""

from collections.abc import Callable, Sequence
from typing import Any


class Proxy:
    """What a subclass does not define is handed on to what is behind it."""

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
        """A call is about to be handed on."""

    def after(self, name: str, answer: Any) -> None:
        """A call was answered."""


class BeforeDownload(Proxy):
    """A server where something happens right before each download."""

    def __init__(self, behind: Any, happens: Callable[[], object]) -> None:
        super().__init__(behind)
        self._happens = happens

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "download":
            self._happens()

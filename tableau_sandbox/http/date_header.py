from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class DateHeader:
    """Sets the Date of every answer by the sandbox's clock; uvicorn would use the machine's."""

    def __init__(self, app: ASGIApp, clock: Callable[[], datetime]):
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and set the Date of its answer."""

        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                date = format_datetime(self._clock().astimezone(UTC), usegmt=True)
                MutableHeaders(scope=message)["Date"] = date
            await send(message)

        await self._app(scope, receive, send_dated)

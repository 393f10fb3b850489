import re

from starlette.types import ASGIApp, Receive, Scope, Send


class LeadingSlashes:
    """Serves paths that begin with several slashes as if they began with one.

    Clients write such paths when their users end the address of the server with a slash.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with one slash at the beginning of its path."""
        if scope["type"] == "http" and scope["path"].startswith("//"):
            path = re.sub("^/+", "/", scope["path"])
            raw_path = re.sub(b"^/+", b"/", scope["raw_path"])
            scope = {**scope, "path": path, "raw_path": raw_path}
        await self._app(scope, receive, send)

"""The refusals that the sandbox sends to clients."""

_SUMMARIES = {
    400: "Bad Request",
    401: "Unauthorized Access",
    403: "Forbidden",
    404: "Resource Not Found",
    405: "Method Not Allowed",
    409: "Resource Conflict",
    429: "Too Many Requests",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class RestError(Exception):
    """A refusal of a request. VizQL Data Service sends it without the summary.

    Attributes:
        code: six digits; the first three are the HTTP status.
        summary: the kind of refusal in a few words.
        detail: what was refused and why.
    """

    def __init__(self, code: str, summary: str, detail: str):
        super().__init__(f"{code} {summary}: {detail}")
        self.code = code
        self.summary = summary
        self.detail = detail

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return int(self.code[:3])


def refusal(code: str, detail: str) -> RestError:
    """Return a `RestError` with the usual summary of its status."""
    return RestError(code, _SUMMARIES[int(code[:3])], detail)


def malformed(detail: str) -> RestError:
    """Return the refusal of a request that cannot be parsed."""
    return refusal("400000", detail)


def not_found(kind: str, identifier: str, *, code: str) -> RestError:
    """Return the refusal of a request for an object that does not exist."""
    return refusal(code, f"{kind} '{identifier}' could not be found.")

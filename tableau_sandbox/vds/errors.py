class VdsError(Exception):
    """A refusal, in the form of VizQL Data Service.

    Attributes:
        code: six digits; the first three are the HTTP status.
        message: what was refused and why.
    """

    def __init__(self, code: str, message: str):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return int(self.code[:3])


def malformed(message: str) -> VdsError:
    """Return the refusal of a request that is not of the form that Tableau's OpenAPI describes."""
    return VdsError("400802", message)


def against_the_rules(message: str) -> VdsError:
    """Return the refusal of a request of the right form that makes no valid query."""
    return VdsError("400803", message)


def invalid_formula(message: str) -> VdsError:
    """Return the refusal of a calculation."""
    return VdsError("400800", message)


def not_emulated(what: str) -> VdsError:
    """Return the refusal of what a real server may do, but the sandbox does not."""
    return VdsError("501000", f"{what}: not emulated.")

"""Use credentials for the objects below a URL, in place of the environment's credentials.

The catalog of a table may hand out credentials that are valid only for the table's files. `lend`
makes this process use these credentials for the folder of the table. The credentials apply until
`lend` is called again for the folder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from obstore.store import ObjectStore

from tableau_pipeline.objects.arrow_files import open_store

# Renew credentials that expire within this time, because a request may wait before it is sent.
_MARGIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials for a store.

    Attributes:
        secrets: the credentials; the keys are obstore's names, such as `access_key_id`.
        expires_at: the time of expiry; None if it is unknown.
        config: settings of the store that come with the credentials; the keys are obstore's names,
            such as `endpoint`. All other settings come from the environment.
    """

    secrets: Mapping[str, str | None] = field(repr=False)
    expires_at: datetime | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Provider:
    """Returns credentials; obstore calls the provider for the first request, and before expiry."""

    credentials: Credentials
    renew: Callable[[], Credentials] | None

    def __call__(self) -> dict[str, Any]:
        expires_at = self.credentials.expires_at
        if self.renew and expires_at and expires_at - datetime.now(UTC) < _MARGIN:
            self.credentials = self.renew()
        return {**self.credentials.secrets, "expires_at": self.credentials.expires_at}


class _Loan:
    """The credentials for a folder, and the stores that use them."""

    def __init__(
        self, credentials: Credentials, lender: str, renew: Callable[[], Credentials] | None
    ) -> None:
        self.credentials, self.lender = credentials, lender
        # The provider must not refer to the loan, or the loan would never be freed: Python's
        # garbage collector finds no cycles through a store.
        provider = _Provider(credentials, renew)
        # Override a setting of the environment that would turn off the credentials.
        config = {"skip_signature": False, **credentials.config}
        self.store_at = cache(
            lambda place: open_store(place, config=config, credential_provider=provider)
        )


# The keys are the URLs of folders.
_loans: dict[str, _Loan] = {}


def lend(
    folder: str,
    credentials: Credentials | None,
    *,
    lender: str,
    renew: Callable[[], Credentials] | None = None,
) -> None:
    """From now on, use these credentials for all objects below a URL.

    Args:
        folder: the URL of the folder, with the scheme "s3" for S3, without a trailing slash.
        credentials: the credentials; None to use the environment's credentials again.
        lender: words for the origin of the credentials, for messages.
        renew: a function that returns new credentials to replace credentials that expire. A thread
            of obstore calls this function, so it must not read from a store.
    """
    if credentials is None:
        _loans.pop(folder, None)
    # Keep the store and its connections if the credentials are unchanged.
    elif folder not in _loans or _loans[folder].credentials != credentials:
        _loans[folder] = _Loan(credentials, lender, renew)


def lent_store(place: str, url: str) -> ObjectStore | None:
    """Return the store at a place, with the credentials lent for a URL; None without credentials.

    Args:
        place: the URL of a bucket or folder that contains the object at `url`.
    """
    loan = _loan(url)
    return loan.store_at(place) if loan else None


def names_for_messages(url: str) -> dict[str, str]:
    """Return the words for the credentials and the endpoint lent for a URL; {} if none are lent."""
    if not (loan := _loan(url)):
        return {}
    names = {"credentials": f"the credentials of {loan.lender}"}
    if "endpoint" in loan.credentials.config:
        names["endpoint"] = f"the endpoint of {loan.lender}"
    return names


def _loan(url: str) -> _Loan | None:
    """Return the loan for the innermost folder that contains an object; None without a loan."""
    folders = [folder for folder in [*_loans] if f"{url}/".startswith(f"{folder}/")]
    return _loans.get(max(folders, key=len)) if folders else None

"""Credentials for the objects below one URL, in place of those in the environment.

The catalog of a table may hand out credentials for the table's files alone. `lend` makes this
process use them for the folder of the table, until it lends others for the same folder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from obstore.store import ObjectStore

from tableau_pipeline.objects.arrow_files import open_store

# Renew credentials that expire sooner than this, because a request may wait before it is sent.
_MARGIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials for a store.

    Attributes:
        secrets: the credentials as obstore names them, such as `access_key_id`.
        expires_at: None if no time of expiry is known.
        config: settings of the store that come with the credentials, as obstore names them, such as
            `endpoint`. Other settings come from the environment.
    """

    secrets: Mapping[str, str | None] = field(repr=False)
    expires_at: datetime | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Provider:
    """Returns the credentials; obstore calls it if it has none, or if those it has expire soon."""

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
        # The provider must not refer to this object: Python does not find cycles through a store.
        provider = _Provider(credentials, renew)
        # A setting of the environment must not turn the credentials off.
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
    """Use credentials for all objects below a URL from now on; if None, those of the environment.

    Args:
        folder: the URL of the folder, with the scheme "s3" for S3, without a trailing slash.
        lender: the origin of the credentials, in words for messages.
        renew: returns new credentials in place of those that expire. A thread of obstore calls it,
            so it must not read from a store itself.
    """
    if credentials is None:
        _loans.pop(folder, None)
    # Keep the connections of a store whose credentials are the same.
    elif folder not in _loans or _loans[folder].credentials != credentials:
        _loans[folder] = _Loan(credentials, lender, renew)


def lent_store(place: str, url: str) -> ObjectStore | None:
    """Return the store at a place for the object at a URL; None if no credentials are lent for it.

    Args:
        place: the URL of a bucket or of a folder that contains the object.
    """
    loan = _loan(url)
    return loan.store_at(place) if loan else None


def names_for_messages(url: str) -> dict[str, str]:
    """Return the words for settings that differ from the environment's; see `describe_failure`."""
    if not (loan := _loan(url)):
        return {}
    names = {"credentials": f"the credentials of {loan.lender}"}
    if "endpoint" in loan.credentials.config:
        names["endpoint"] = f"the endpoint of {loan.lender}"
    return names


def _loan(url: str) -> _Loan | None:
    """Return the loan for the innermost folder that contains an object."""
    folders = [folder for folder in [*_loans] if f"{url}/".startswith(f"{folder}/")]
    return _loans.get(max(folders, key=len)) if folders else None

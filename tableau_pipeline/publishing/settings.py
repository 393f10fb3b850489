"""Hold the settings of a Tableau site, read them from the environment, and open sessions."""

import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.errors import SettingError
from tableau_pipeline.publishing.session import (
    ConnectedApp,
    Credentials,
    Password,
    PersonalAccessToken,
    signed_in,
)
from tableau_pipeline.publishing.site import TableauSite

_HINT = (
    "Set it in the environment, or in a .env in the folder where Dagster starts. For a test "
    "server with credentials, start `tableau-sandbox`."
)
_FLAGS = {"1": True, "true": True, "yes": True, "on": True}
_FLAGS |= {"0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A site, and one of the three ways to sign in.

    Each field has the name of its environment variable, in lower case and without TABLEAU_. A
    missing setting is an error only when a session needs the setting.
    """

    server_url: str | None = None
    site: str = ""
    token_name: str | None = None
    token_value: str | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    connected_app_client_id: str | None = None
    connected_app_secret_id: str | None = None
    connected_app_secret_value: str | None = field(default=None, repr=False)
    ca_bundle: str | None = None
    job_timeout: int = 7200
    queue_timeout: int = 7200
    arrival_timeout: int = 600
    takeover: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the settings from the environment variables TABLEAU_...

        Raises:
            RefusedError: a variable has an invalid value.
        """
        given: dict[str, Any] = {}
        for each in fields(cls):
            variable = variable_of(each.name)
            if value := environment.get(variable):
                given[each.name] = _parsed(variable, value, each.default)
        return cls(**given)

    @property
    def timeouts(self) -> Timeouts:
        """The time limits for requests to this server, and for its jobs."""
        return Timeouts(
            job=self.job_timeout, queue=self.queue_timeout, arrival=self.arrival_timeout
        )

    def session(
        self, log: logging.Logger, *, counts: bool = False, people: bool = False
    ) -> AbstractContextManager[TableauSite]:
        """Open a session on the site for a `with` block.

        Args:
            counts: whether a connected app requests the right to let the server count rows. With
                other credentials, the session always has this right.
            people: whether a connected app requests the rights to look up groups and users, and to
                change permissions. With other credentials, the user's own rights count.

        Raises:
            RefusedError: a setting is missing, or the server rejects the credentials.
            RefreshError: no Tableau Server answers at the URL.
        """
        return signed_in(
            self._needed("server_url"),
            site=self.site,
            credentials=self._credentials(counts=counts, people=people),
            ca_bundle=Path(self.ca_bundle) if self.ca_bundle else None,
            log=log,
        )

    def _credentials(self, *, counts: bool, people: bool) -> Credentials:
        if self.token_name or self.token_value:
            return PersonalAccessToken(self._needed("token_name"), self._needed("token_value"))
        # Look for a connected app before a password, because both need a user name.
        if self.connected_app_client_id:
            return ConnectedApp(
                username=self._needed("username"),
                client_id=self.connected_app_client_id,
                secret_id=self._needed("connected_app_secret_id"),
                secret_value=self._needed("connected_app_secret_value"),
                counts=counts,
                people=people,
            )
        if self.username or self.password:
            return Password(self._needed("username"), self._needed("password"))
        raise SettingError(
            "No credentials for Tableau: set TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE, or "
            "TABLEAU_USERNAME and TABLEAU_PASSWORD, or TABLEAU_USERNAME and "
            "TABLEAU_CONNECTED_APP_CLIENT_ID, _SECRET_ID and _SECRET_VALUE. " + _HINT,
        )

    def _needed(self, name: str) -> str:
        if value := getattr(self, name):
            return value
        raise SettingError(f"{variable_of(name)} is not set. {_HINT}")


def variable_of(name: str) -> str:
    """Return the environment variable of a setting, such as TABLEAU_TOKEN_NAME for `token_name`."""
    return f"TABLEAU_{name.upper()}"


def _parsed(variable: str, value: str, default: object) -> object:
    if isinstance(default, bool):
        if (flag := _FLAGS.get(value.lower())) is None:
            raise SettingError(f"{variable} is {value!r}: set it to true or false.")
        return flag
    if isinstance(default, int):
        if not value.isdecimal() or not int(value):
            raise SettingError(f"{variable} is {value!r}: set it to a number of seconds.")
        return int(value)
    return value

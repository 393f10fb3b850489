import logging
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, ValidationInfo, field_validator

from tableau_pipeline.core.server import Timeouts
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.publishing.session import (
    ConnectedApp,
    Credentials,
    Password,
    PersonalAccessToken,
    signed_in,
)
from tableau_pipeline.publishing.site import TableauSite

# The launchpad shows this instead of a secret, and sends it back as the value.
_MASK = "********"
_SECRETS = ("token_value", "password", "connected_app_secret_value")
_WHERE = (
    "Set it in the environment, or in a .env in the folder where Dagster starts. For a test "
    "server with credentials, start `tableau-sandbox`."
)


def _variable(field: str) -> str:
    """Return the environment variable of a setting: TABLEAU_TOKEN_NAME of `token_name`."""
    return f"TABLEAU_{field.upper()}"


def _secret(name: str) -> Any:
    return Field(
        default=None,
        description=_variable(name),
        repr=False,
        json_schema_extra={"dagster__is_secret": True},
    )


class TableauServerResource(dg.ConfigurableResource):
    """A site of Tableau Server or Tableau Cloud, and one of the three ways to sign in.

    Missing settings are reported when a refresh needs them, not before.
    """

    server_url: str | None = Field(default=None, description="TABLEAU_SERVER_URL")
    site: str = Field(default="", description='The site\'s content URL; "" is the default site.')
    token_name: str | None = Field(default=None, description="TABLEAU_TOKEN_NAME")
    token_value: str | None = _secret("token_value")
    username: str | None = Field(default=None, description="TABLEAU_USERNAME")
    password: str | None = _secret("password")
    connected_app_client_id: str | None = Field(default=None)
    connected_app_secret_id: str | None = Field(default=None)
    connected_app_secret_value: str | None = _secret("connected_app_secret_value")
    ca_bundle: str | None = Field(
        default=None, description="PEM file with the certificates to trust."
    )
    job_timeout: int = Field(
        default=7200, gt=0, description="Seconds that a job may run on the server."
    )
    queue_timeout: int = Field(
        default=7200, gt=0, description="Seconds that a job may wait before it starts."
    )
    takeover: bool = Field(
        default=False,
        description="Take over data sources with the tag of another deployment. Use it after the "
        "records were lost.",
    )

    @field_validator(*_SECRETS)
    @classmethod
    def _unmasked(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value == _MASK:
            return os.environ.get(_variable(str(info.field_name)))
        return value

    @property
    def timeouts(self) -> Timeouts:
        """The time limits of a refresh with this server."""
        return Timeouts(job=self.job_timeout, queue=self.queue_timeout)

    def session(
        self, log: logging.Logger | None = None, *, counts: bool = False
    ) -> AbstractContextManager[TableauSite]:
        """Open a session on the site, which ends with the block; `.tsc` is the TSC client.

        Args:
            counts: whether a connected app asks for the right to let the server count rows;
                others have it anyway.

        Raises:
            RefusedError: a setting is missing, or the server rejects the credentials.
            RefreshError: no Tableau Server answers.
        """
        return signed_in(
            self._needed("server_url"),
            site=self.site,
            credentials=self._credentials(counts=counts),
            ca_bundle=Path(self.ca_bundle) if self.ca_bundle else None,
            log=log or logging.getLogger(__name__),
        )

    def _credentials(self, *, counts: bool) -> Credentials:
        if self.token_name or self.token_value:
            return PersonalAccessToken(self._needed("token_name"), self._needed("token_value"))
        # Before the password, because a connected app has a user name as well.
        if self.connected_app_client_id:
            return ConnectedApp(
                username=self._needed("username"),
                client_id=self.connected_app_client_id,
                secret_id=self._needed("connected_app_secret_id"),
                secret_value=self._needed("connected_app_secret_value"),
                counts=counts,
            )
        if self.username or self.password:
            return Password(self._needed("username"), self._needed("password"))
        raise RefusedError(
            "No credentials for Tableau: set TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE, or "
            "TABLEAU_USERNAME and TABLEAU_PASSWORD, or TABLEAU_USERNAME and "
            "TABLEAU_CONNECTED_APP_CLIENT_ID, _SECRET_ID and _SECRET_VALUE. " + _WHERE
        )

    def _needed(self, field: str) -> str:
        if value := getattr(self, field):
            return value
        raise RefusedError(f"{_variable(field)} is not set. {_WHERE}")

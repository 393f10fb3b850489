import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from tableau_sandbox.quirks import STRICT, Quirks, option
from tableau_sandbox.store.records import SITE_ROLES

# The minimum length in bytes of the secret that signs a token.
_SECRET_BYTES = 32
_Count = Annotated[int, Field(ge=1, lt=1_000_000)]


@dataclass(frozen=True, kw_only=True)
class UserSeed:
    """A user that exists from the start.

    Attributes:
        name: the sign-in name.
        password: the password.
        site_role: Tableau's name of the role. Administrators may do everything. "Creator" and
            "ExplorerCanPublish" may publish. "Explorer" may download what rules allow. "Viewer" may
            only look. "Unlicensed" may not sign in.
        tokens: the user's personal access tokens, as pairs of name and secret.

    Raises:
        ValueError: Tableau has no such site role.
    """

    name: str
    password: str = field(repr=False)
    site_role: str = "Creator"
    tokens: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.site_role not in SITE_ROLES:
            raise ValueError(
                f"'{self.site_role}' is no site role; Tableau has {', '.join(SITE_ROLES)}"
            )


ADMIN = UserSeed(
    name="admin",
    password="admin",  # noqa: S106 - the well-known password of a sandbox
    site_role="ServerAdministrator",
    tokens=(("pipeline", "pipeline-secret"),),
)


@dataclass(frozen=True, kw_only=True)
class ConnectedApp:
    """An application that signs JSON web tokens for users with a secret."""

    client_id: str
    secret_id: str
    secret_value: str = field(repr=False)


CONNECTED_APP = ConnectedApp(
    client_id="pipeline-app",
    secret_id="pipeline-app-key",  # noqa: S106
    # The signature does not accept a shorter secret.
    secret_value="pipeline-app-secret-of-32-characters",  # noqa: S106
)


def _user(text: str) -> UserSeed:
    name, _, rest = text.partition(":")
    password, _, site_role = rest.partition(":")
    if not (name and password):
        raise ValueError("expected NAME:PASSWORD[:SITE_ROLE]")
    return UserSeed(name=name, password=password, site_role=site_role or "Creator")


def _connected_app(text: str) -> ConnectedApp:
    parts = text.split(":")
    if len(parts) != 3 or not all(parts):
        raise ValueError("expected CLIENT_ID:SECRET_ID:SECRET_VALUE")
    client_id, secret_id, secret_value = parts
    if len(secret_value.encode()) < _SECRET_BYTES:
        raise ValueError(f"the secret needs {_SECRET_BYTES} bytes or more")
    return ConnectedApp(client_id=client_id, secret_id=secret_id, secret_value=secret_value)


@checked_dataclass(frozen=True, kw_only=True, config=STRICT)
class Options(Quirks):
    """The options of a sandbox, in addition to the inherited quirks.

    Each attribute with a help text is an option of the command.

    Attributes:
        build: the product's build that the sandbox reports.
        upload_hours: the duration of an upload session.
        admin: the administrator; replaces the former administrator of an existing data folder.
    """

    data_dir: Path = option(Path("data/sandbox"), "the folder of the sandbox's data")
    rest_version: Annotated[str, Field(pattern=r"^[1-9]\d?\.\d{1,2}$")] = option(
        "3.27", "the newest version of the REST API; older ones down to 2.0 are served too"
    )
    product_version: str = option("2025.3.0", "the server version that the sandbox reports")
    build: str = "20253.25.1021.0000"
    time_zone: str = option("UTC", "the time zone of schedules")
    session_minutes: float = option(240, "the duration of a session, in minutes")
    one_session_per_token: bool = option(
        True, "a second sign-in with a personal access token ends the first"
    )
    token_days: float | None = option(
        None, "personal access tokens are listed, as by Tableau Cloud, and end after so many days"
    )
    upload_hours: float = 24
    upload_blocks: _Count = option(1000, "the number of blocks that an uploaded file may have")
    job_delay: float = option(0, "seconds that a job stays in progress before it takes effect")
    kept_revisions: _Count = option(
        25, "the number of publishes kept of each data source, with the current publish"
    )
    update_limit_mb: float | None = option(
        None, "the largest payload of a data update, in MiB (default: 100; 10 before 2022.1)"
    )
    connected_apps: tuple[ConnectedApp, ...] = option(
        (CONNECTED_APP,),
        "accept tokens of this connected app, in place of the default app",
        flag="connected-app",
        metavar="CLIENT_ID:SECRET_ID:SECRET_VALUE",
        parse=_connected_app,
    )
    tls: bool = option(False, "serve HTTPS, with a certificate that the sandbox makes")
    allowed_hosts: tuple[str, ...] = option(
        (),
        "a name of the sandbox for browsers, besides its address and localhost",
        flag="allowed-host",
        metavar="NAME",
    )
    control: bool = option(False, "accept faults and clock changes at /control, see below")
    sites: tuple[str, ...] = option(
        (), "the content URL of an additional site", flag="site", metavar="CONTENT_URL"
    )
    admin: UserSeed = ADMIN
    users: tuple[UserSeed, ...] = option(
        (),
        "an additional user of every site (default role: Creator)",
        flag="user",
        metavar="NAME:PASSWORD[:SITE_ROLE]",
        parse=_user,
    )

    @property
    def knows_replace(self) -> bool:
        """Whether publishes may have the mode Replace, which version 3.25 of the API introduced."""
        major, _, minor = self.rest_version.partition(".")
        return self.replace != "unknown" and (int(major), int(minor)) >= (3, 25)

    @property
    def update_limit_bytes(self) -> float:
        """The largest payload of a data update in bytes."""
        megabytes = self.update_limit_mb
        if megabytes is None:
            version = re.match(r"(\d+)\.(\d+)", self.product_version)
            is_old = version is not None and (int(version[1]), int(version[2])) < (2022, 1)
            megabytes = 10 if is_old else 100
        return megabytes * (1 << 20)

import re
from dataclasses import dataclass, field
from pathlib import Path

from tableau_sandbox.quirks import Quirks
from tableau_sandbox.store.records import SITE_ROLES

ADMIN_NAME = "admin"
ADMIN_PASSWORD = "admin"  # noqa: S105 - the well-known door of a sandbox
TOKEN_NAME = "pipeline"  # noqa: S105
TOKEN_SECRET = "pipeline-secret"  # noqa: S105


@dataclass(frozen=True, kw_only=True)
class UserSeed:
    """A user that exists from the start.

    Attributes:
        name: the sign-in name.
        password: the password.
        site_role: Tableau's name of the role. Administrators may do everything, "Creator" and
            "ExplorerCanPublish" may publish, "Explorer" may download what rules allow, "Viewer" may
            only look, and "Unlicensed" may not sign in.
        tokens: their personal access tokens, secrets by name.

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
    name=ADMIN_NAME,
    password=ADMIN_PASSWORD,
    site_role="ServerAdministrator",
    tokens=((TOKEN_NAME, TOKEN_SECRET),),
)


@dataclass(frozen=True, kw_only=True)
class ConnectedApp:
    """An application that signs JSON web tokens for users with its secret."""

    client_id: str
    secret_id: str
    secret_value: str = field(repr=False)


CONNECTED_APP = ConnectedApp(
    client_id="pipeline-app",
    secret_id="pipeline-app-key",  # noqa: S106
    # A shorter secret is too short for the signature.
    secret_value="pipeline-app-secret-of-32-characters",  # noqa: S106
)


@dataclass(frozen=True, kw_only=True)
class Options(Quirks):
    """The behaviour of a sandbox, including what Tableau leaves open.

    Attributes:
        data_dir: the folder of all its data.
        rest_version: the newest REST API version; older ones down to 2.0 are served too.
        product_version: the server version that it reports.
        build: the build that it reports.
        session_minutes: the duration of a session.
        one_session_per_token: whether a second sign-in with a personal access token ends the first.
        upload_hours: the duration of an upload session.
        upload_blocks: the largest number of blocks of an uploaded file.
        job_delay: seconds that each job stays in progress before it takes effect.
        hyper_profile: the allowed content of a `.hyper` file, by release: "2019.4" for the one
            table "Extract"."Extract", "2020.1" for one table, "2021.4" for one tree of tables.
        kept_revisions: the number of publishes kept of one data source, including the current one.
        update_limit_mb: the largest payload of a data update, in units of 2^20 bytes; None for the
            limit of servers of the product version.
        lenient_missing_columns: whether rows inserted by a data update have NULL in nullable
            columns that their source lacks; otherwise such an update fails.
        connected_apps: the apps whose tokens let their users sign in.
        tls: serve HTTPS, with a self-signed certificate.
        header_seconds: the longest time in which the head of a request must arrive.
        allowed_hosts: names by which browsers may reach it, besides its address and those of
            loopback.
        control: accept faults over HTTP, from this machine.
        sites: content URLs of additional sites.
        admin: the administrator, also of data that had another one before.
        users: additional users; all users belong to every site.
    """

    data_dir: Path
    rest_version: str = "3.27"
    product_version: str = "2025.3.0"
    build: str = "20253.25.1021.0000"
    session_minutes: float = 240
    one_session_per_token: bool = True
    upload_hours: float = 24
    upload_blocks: int = 1000
    job_delay: float = 0
    hyper_profile: str = "2021.4"
    kept_revisions: int = 25
    update_limit_mb: float | None = None
    lenient_missing_columns: bool = False
    connected_apps: tuple[ConnectedApp, ...] = (CONNECTED_APP,)
    tls: bool = False
    header_seconds: float = 30
    allowed_hosts: tuple[str, ...] = ()
    control: bool = False
    sites: tuple[str, ...] = ()
    admin: UserSeed = ADMIN
    users: tuple[UserSeed, ...] = ()

    @property
    def update_limit_bytes(self) -> float:
        """The largest payload of a data update in bytes."""
        megabytes = self.update_limit_mb
        if megabytes is None:
            version = re.match(r"(\d+)\.(\d+)", self.product_version)
            is_old = version is not None and (int(version[1]), int(version[2])) < (2022, 1)
            megabytes = 10 if is_old else 100
        return megabytes * (1 << 20)

import re
from dataclasses import dataclass, field
from pathlib import Path

from tableau_pipeline.sandbox.open_questions import OpenQuestions

ADMIN_NAME = "admin"
ADMIN_PASSWORD = "admin"  # noqa: S105 - the well-known door of a sandbox
TOKEN_NAME = "pipeline"  # noqa: S105
TOKEN_SECRET = "pipeline-secret"  # noqa: S105


@dataclass(frozen=True, kw_only=True)
class UserSeed:
    """A user that is there from the start.

    Attributes:
        name: what they sign in with.
        password: likewise.
        site_role: as Tableau calls it: "ServerAdministrator" may do everything, "Creator" and
            "ExplorerCanPublish" may publish and change what is their own, others may look.
        tokens: their personal access tokens, secrets by name.
    """

    name: str
    password: str
    site_role: str = "Creator"
    tokens: tuple[tuple[str, str], ...] = ()


ADMIN = UserSeed(
    name=ADMIN_NAME,
    password=ADMIN_PASSWORD,
    site_role="ServerAdministrator",
    tokens=((TOKEN_NAME, TOKEN_SECRET),),
)


@dataclass(frozen=True, kw_only=True)
class ConnectedApp:
    """An application that signs JSON web tokens for users; the secret signs, the others name it."""

    client_id: str
    secret_id: str
    secret_value: str = field(repr=False)


CONNECTED_APP = ConnectedApp(
    client_id="pipeline-app",
    secret_id="pipeline-app-key",  # noqa: S106
    # Shorter ones are too short for the signature.
    secret_value="pipeline-app-secret-of-32-characters",  # noqa: S106
)


@dataclass(frozen=True, kw_only=True)
class Options(OpenQuestions):
    """How one sandbox behaves, also where Tableau leaves it open.

    Attributes:
        data_dir: where everything it knows is kept.
        rest_version: the newest REST API version; older ones down to 2.0 are served too.
        product_version: the server version it claims to be.
        build: the build it claims to be.
        session_minutes: how long a sign-in lasts.
        one_session_per_token: a second sign-in with a personal access token ends the first.
        upload_hours: how long an upload session lasts.
        upload_blocks: how many blocks an uploaded file may have.
        job_delay: seconds that each job stays in progress before it takes effect.
        hyper_profile: what a `.hyper` file may hold, by release: "2019.4" the one table
            "Extract"."Extract", "2020.1" one table, "2021.4" one tree of tables.
        kept_revisions: how many publishes of one data source are kept, the current one included.
        update_limit_mb: how large the payload of a data update may be, in units of 2^20 bytes;
            None means what servers of the product version allow.
        lenient_missing_columns: rows inserted by a data update have NULL in nullable columns
            that their source lacks; otherwise such an update fails.
        connected_apps: those whose tokens let their users sign in.
        tls: speak HTTPS, with a certificate that signs itself.
        control: faults can be ordered over HTTP, from this machine.
        sites: content URLs of sites beside the default one.
        users: users beside the administrator; all belong to every site.
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
    control: bool = False
    sites: tuple[str, ...] = ()
    users: tuple[UserSeed, ...] = ()

    @property
    def update_limit_bytes(self) -> float:
        """How many bytes the payload of a data update may have."""
        megabytes = self.update_limit_mb
        if megabytes is None:
            version = re.match(r"(\d+)\.(\d+)", self.product_version)
            is_old = version is not None and (int(version[1]), int(version[2])) < (2022, 1)
            megabytes = 10 if is_old else 100
        return megabytes * (1 << 20)

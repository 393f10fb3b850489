from dataclasses import dataclass
from pathlib import Path

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
class Options:
    """How one sandbox behaves.

    Attributes:
        data_dir: where everything it knows is kept.
        rest_version: the newest REST API version; older ones down to 2.0 are served too.
        product_version: the server version it claims to be.
        build: the build it claims to be.
        session_minutes: how long a sign-in lasts.
        one_session_per_token: a second sign-in with a personal access token ends the first.
        upload_hours: how long an upload session lasts.
        job_delay: seconds that each job stays in progress before it takes effect.
        replace_keeps_metadata: publish mode Replace swaps the data and keeps the stored `.tds`;
            otherwise it is like Overwrite, except that the data source must exist.
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
    job_delay: float = 0
    replace_keeps_metadata: bool = True
    control: bool = False
    sites: tuple[str, ...] = ()
    users: tuple[UserSeed, ...] = ()

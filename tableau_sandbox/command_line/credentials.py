"""Who may sign in: the environment names the administrator, so that no secret stands in `ps`.

The administrator is that of these variables:
  TABLEAU_SANDBOX_USER, TABLEAU_SANDBOX_PASSWORD           default: admin, admin
  TABLEAU_SANDBOX_TOKEN_NAME, TABLEAU_SANDBOX_TOKEN_SECRET default: pipeline, pipeline-secret
With a --host that other machines can reach, the user, the password and the secret of the token must
not be these defaults, and the default connected app is not accepted.

Options can also stand in a file, one line for each word: tableau-sandbox @FILE
"""

from collections.abc import Mapping
from dataclasses import replace

from tableau_sandbox.options import ADMIN, CONNECTED_APP, Options, UserSeed

USER = "TABLEAU_SANDBOX_USER"
PASSWORD = "TABLEAU_SANDBOX_PASSWORD"  # noqa: S105 - the name of a variable
TOKEN_NAME = "TABLEAU_SANDBOX_TOKEN_NAME"  # noqa: S105
TOKEN_SECRET = "TABLEAU_SANDBOX_TOKEN_SECRET"  # noqa: S105


class WellKnownCredentialsError(ValueError):
    """Everybody knows them; the message names the variables to set."""


def administrator(environment: Mapping[str, str]) -> UserSeed:
    """Return the administrator of an environment; what it leaves open is as in `ADMIN`."""
    ((token_name, token_secret),) = ADMIN.tokens
    token = environment.get(TOKEN_NAME) or token_name, environment.get(TOKEN_SECRET) or token_secret
    return replace(
        ADMIN,
        name=environment.get(USER) or ADMIN.name,
        password=environment.get(PASSWORD) or ADMIN.password,
        tokens=(token,),
    )


def for_other_machines(options: Options) -> Options:
    """Return the options for a sandbox that other machines can reach.

    Raises:
        WellKnownCredentialsError: the administrator has a name, a password or a token that the
            documentation of the sandbox tells to everybody, or another user has that password.
    """
    admin = options.admin
    ((_, token_secret),) = admin.tokens
    ((_, known_secret),) = ADMIN.tokens
    known = {
        # Names are equal in any case of letters.
        USER: admin.name.casefold() == ADMIN.name,
        PASSWORD: admin.password == ADMIN.password,
        TOKEN_SECRET: token_secret == known_secret,
        "--user": any(user.password == ADMIN.password for user in options.users),
    }
    if any(known.values()):
        raise WellKnownCredentialsError(", ".join(name for name in known if known[name]))
    apps = [app for app in options.connected_apps if app.secret_value != CONNECTED_APP.secret_value]
    return replace(options, connected_apps=tuple(apps))

"""Users of a sandbox whom facts sign in, and the environment that names them."""

from dataclasses import replace

from tableau_sandbox.facts import credentials
from tableau_sandbox.options import CONNECTED_APP, UserSeed
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.conftest import VIEWER as WITHOUT_A_TOKEN

VIEWER: UserSeed = replace(WITHOUT_A_TOKEN, tokens=(("vera", "vera-secret"),))
_APP = (CONNECTED_APP.client_id, CONNECTED_APP.secret_id, CONNECTED_APP.secret_value)
OTHERS = {
    **dict(zip(credentials.APP, _APP, strict=True)),
    **dict(zip(credentials.VIEWER, VIEWER.tokens[0], strict=True)),
    **dict(zip(credentials.CREATOR, ALICE.tokens[0], strict=True)),
    credentials.USER: Sandbox.user,
    credentials.PASSWORD: Sandbox.password,
    credentials.OTHER_SITE: "second",
}

"""A fixture of pytest, `tableau_sandbox`, wherever this distribution is installed.

pytest loads this module at every start, also where the extra `sandbox` is missing. So it imports
nothing but pytest until a test asks for the fixture.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tableau_sandbox.testing import Sandbox


@pytest.fixture
def tableau_sandbox(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Generator["Sandbox"]:
    """Run a sandbox for one test, and set the environment variables that name it."""
    try:
        from tableau_sandbox.testing import running_sandbox
    except ImportError as error:
        pytest.fail(
            f"{error}: the fixture tableau_sandbox needs the extra 'sandbox'; "
            "pip install 'tableau_pipeline[sandbox]'",
            pytrace=False,
        )
    with running_sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        monkeypatch.setenv("TABLEAU_SERVER_URL", sandbox.url)
        monkeypatch.setenv("TABLEAU_SITE", "")
        monkeypatch.setenv("TABLEAU_TOKEN_NAME", sandbox.token_name)
        monkeypatch.setenv("TABLEAU_TOKEN_VALUE", sandbox.token_secret)
        yield sandbox

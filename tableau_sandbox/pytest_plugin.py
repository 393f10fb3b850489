"""A fixture of pytest, `tableau_sandbox`, available wherever this distribution is installed.

pytest loads this module at every start, even if the extra `sandbox` is missing. So this module
imports only pytest until a test asks for the fixture.
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
    """Run a sandbox for one test, and set the environment variables that the pipeline reads."""
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

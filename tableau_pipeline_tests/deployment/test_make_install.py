"""What `make` installs with: uv, with pip's own settings, or else pip."""

import shutil
import sys
import venv
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.environments import INSTALLER, run

# A package that no public index has, and a project that needs it.
ONLY_HERE = "tableau-pipeline-only-here"
PROJECT = f"""
[project]
name = "small"
version = "1"
[project.optional-dependencies]
dev = ["{ONLY_HERE}"]
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import zipfile

INFO = "small-1.dist-info"

def build_editable(folder, settings=None, metadata=None):
    text = "Metadata-Version: 2.1\\nName: small\\nVersion: 1\\nProvides-Extra: dev\\n"
    text += 'Requires-Dist: tableau-pipeline-only-here; extra == "dev"\\n'
    with zipfile.ZipFile(f"{folder}/small-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{INFO}/METADATA", text)
        wheel.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(f"{INFO}/RECORD", "")
    return "small-1-py3-none-any.whl"

build_wheel = build_editable
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project like this one, with an environment and an index that only pip's settings name."""
    folder = tmp_path / "project"
    venv.create(folder / ".venv", with_pip=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (uv,) = [
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:4] == "uv=="
    ]
    (folder / "constraints.txt").write_text(f"{uv}\n")
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "install.py", folder / "scripts")
    return folder


@pytest.fixture
def index(tmp_path: Path):
    """A package index on this host."""
    name = ONLY_HERE.replace("-", "_")
    listed = tmp_path / "index" / ONLY_HERE
    listed.mkdir(parents=True)
    wheel = f"{name}-1-py3-none-any.whl"
    info = f"{name}-1.dist-info"
    with zipfile.ZipFile(listed / wheel, "w") as content:
        content.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        content.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        content.writestr(f"{info}/RECORD", "")
    (listed / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "index")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("uv_works", [True, False])
def test_an_index_of_pips_settings_is_asked(
    project: Path, index: str, tmp_path: Path, *, uv_works: bool
):
    """Prevents: `make` that stops behind a company's mirror, which only pip's settings name."""
    (tmp_path / "pip.conf").write_text(f"[global]\nextra-index-url = {index}\n")
    # Without the network and with nothing in its cache, uv finds nothing.
    breaks_uv = {} if uv_works else {"UV_OFFLINE": "1"}
    python = project / ".venv" / "bin" / "python"
    done = run(
        str(python), "scripts/install.py",
        cwd=project, seconds=300,
        PIP_CONFIG_FILE=str(tmp_path / "pip.conf"), UV_CACHE_DIR=str(tmp_path / "cache"),
        **breaks_uv,
    )  # fmt: skip
    assert ("pip tries it" in done.stdout) is not uv_works
    assert f"{ONLY_HERE} 1" in " ".join(
        run(str(python), "-m", "pip", "list").stdout.replace("_", "-").split()
    )


def test_the_environment_wins_over_files(tmp_path: Path):
    """Prevents: uv at another index than pip, where a file and a variable name one each."""
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a.example/simple\nno-index = true\n"
        "[install]\ntrusted-host = a.example\n    b.example\n"
    )
    listed = run(
        sys.executable, "-m", "pip", "config", "list",
        PIP_CONFIG_FILE=str(tmp_path / "pip.conf"), PIP_INDEX_URL="https://b.example/simple",
        PIP_FIND_LINKS="/wheels /more",
    ).stdout  # fmt: skip
    assert {
        "UV_DEFAULT_INDEX": "https://b.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "a.example b.example",
        "UV_NO_INDEX": "true",
    }.items() <= INSTALLER["uv_environment"](listed).items()

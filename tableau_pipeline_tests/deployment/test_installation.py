"""Installations by pip and make: on each platform that README.md promises, and without extras."""

import re
import shutil
import sys
import venv
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path
from threading import Thread

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tableau_pipeline.core.lake_table import LakeTable
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake.tables import current_version
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.environments import INSTALLER, run

# The oldest macOS for which Tableau has a Hyper API, on processors of Apple and of Intel. For
# Linux, the packages that are installed here show what exists.
MACS = {"arm64": "macosx_13_0_arm64", "x86_64": "macosx_13_0_x86_64"}
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
MACOS = {"sys_platform": "darwin", "platform_system": "Darwin"}
PLATFORMS = {"linux": LINUX, **{each: MACOS | {"platform_machine": each} for each in MACS}}
EXTRAS = ("dev", "dagster-plus")


def pins(platform: str) -> dict[str, str]:
    """The versions that constraints.txt pins for a platform."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if line]
    here = [each for each in pinned if applies(each, platform)]
    return {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in here}


def applies(requirement: Requirement, platform: str, extra: str = "") -> bool:
    """Whether a requirement applies on a platform, in an installation with an extra."""
    environment: Mapping[str, str] = default_environment() | PLATFORMS[platform] | {"extra": extra}  # ty: ignore[invalid-assignment]
    return requirement.marker is None or requirement.marker.evaluate(dict(environment))


def needed(platform: str) -> set[str]:
    """The names of all packages that the package and its extras need on a platform.

    The result lacks the requirements of packages that are not installed here, because only other
    platforms need these packages.
    """
    found: set[tuple[str, str]] = set()
    left = [("tableau-pipeline", extra) for extra in ("", *EXTRAS)]
    while left:
        name, extra = left.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for each in requirements(name):
            if applies(each, platform, extra):
                extras = ("", *each.extras)
                left += [(canonicalize_name(each.name), more) for more in extras]
    return {name for name, _ in found} - {"tableau-pipeline"}


def requirements(name: str) -> Iterator[Requirement]:
    try:
        yield from map(Requirement, distribution(name).requires or ())
    except PackageNotFoundError:
        return


def is_pure(name: str) -> bool:
    """Whether an installed package runs on any platform, because its wheel is pure."""
    try:
        wheel = distribution(name).read_text("WHEEL") or ""
    except PackageNotFoundError:
        return False
    return all(tag.endswith("-none-any") for tag in re.findall(r"^Tag: (.*)$", wheel, re.MULTILINE))


def has_wheel(pin: tuple[str, str], *, tag: str) -> bool:
    """Whether the index has a wheel of this version for a platform."""
    name, version = pin
    asked = run(
        sys.executable, "-m", "pip", "index", "versions", name, "--pre",
        "--only-binary=:all:", "--platform", tag, "--disable-pip-version-check",
    ).stdout  # fmt: skip
    (available,) = re.findall("^Available versions: (.*)$", asked, re.MULTILINE)
    return version in available.split(", ")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_all_that_is_needed_is_pinned(platform: str):
    """Prevents: an installation fails after next month's release of an unpinned package."""
    assert needed(platform) - pins(platform).keys() == set()


def test_what_is_pinned_runs_on_the_oldest_python():
    """Prevents: an installation fails on Debian 12, whose Python is 3.11.2."""
    installed = {canonicalize_name(each.name): each.metadata for each in distributions()}
    pinned = installed.keys() & pins("linux").keys()
    assert len(pinned) > 100
    asked = {name: SpecifierSet(installed[name]["Requires-Python"] or "") for name in pinned}
    assert [name for name, pythons in asked.items() if "3.11.0" not in pythons] == []


# This test asks for some hundred packages, and its result changes only with constraints.txt.
@pytest.mark.long
@pytest.mark.parametrize("platform", MACS)
def test_there_is_a_wheel_for(platform: str):
    """Prevents: an installation fails on every Mac because one package has no wheel for macOS."""
    asked = [pin for pin in pins(platform).items() if not is_pure(pin[0])]
    assert len(asked) > 20
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(partial(has_wheel, tag=MACS[platform]), asked)
        assert [pin for pin, is_there in zip(asked, found, strict=True) if not is_there] == []


@pytest.mark.long
def test_the_hyper_api_of_macos_is_enough(tmp_path: Path):
    """Prevents: the code needs a newer hyperd than the Hyper API of macOS has."""
    version = pins("arm64")["tableauhyperapi"]
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    target = ["--target", str(tmp_path), f"tableauhyperapi=={version}"]
    run(sys.executable, "-m", "pip", *install, *target, seconds=600)
    chosen = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not long"]
    folders = [str(ROOT / "tableau_pipeline_tests" / each) for each in ("hyper", "refresh/lakes")]
    code = (
        "import sys, pytest, tableauhyperapi\n"
        f"assert tableauhyperapi.__version__ == '{version}'\n"
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    run(
        sys.executable, "-c", code, *chosen, *folders,
        cwd=ROOT, seconds=1000, PYTHONPATH=str(tmp_path),
    )  # fmt: skip


# A package that no public index has, and a project that needs this package.
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
    """A project like this one, with a virtual environment, that needs the package ONLY_HERE."""
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
    """Serve a package index on this host; the fixture returns the URL."""
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
    """Prevents: `make` fails behind a company's mirror, which only pip's settings name."""
    (tmp_path / "pip.conf").write_text(f"[global]\nextra-index-url = {index}\n")
    # With an empty cache and no network, uv finds no package.
    breaks_uv = {} if uv_works else {"UV_OFFLINE": "1"}
    python = project / ".venv" / "bin" / "python"
    done = run(
        str(python), "scripts/install.py",
        cwd=project, seconds=300,
        PIP_CONFIG_FILE=str(tmp_path / "pip.conf"), UV_CACHE_DIR=str(tmp_path / "cache"),
        **breaks_uv,
    )  # fmt: skip
    assert ("trying pip" in done.stdout) is not uv_works
    assert f"{ONLY_HERE} 1" in " ".join(
        run(str(python), "-m", "pip", "list").stdout.replace("_", "-").split()
    )


def test_the_environment_wins_over_files(tmp_path: Path):
    """Prevents: uv uses another index than pip if a file and a variable each name an index."""
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


WITHOUT = """import sys

class Missing:
    def find_spec(name, *_):
        if name.partition(".")[0] in ("apprise", "deltalake", "openlineage", "pyiceberg"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing)
import tableau_pipeline.components, tableau_pipeline.lake, tableau_pipeline.scripting
from tableau_pipeline.components.lineage import Lineage
from tableau_pipeline.definitions import defs

assert len([*defs().resolve_all_job_defs()]) > 1
try:
    Lineage(openlineage={})
except ValueError as error:
    assert "pip install 'tableau_pipeline[lineage]'" in str(error)
else:
    raise AssertionError("the location accepts lineage that it cannot send")
"""


@pytest.mark.slow
def test_location_without_extras():
    """Prevents: without extras, a location fails to load, or accepts a key that needs an extra."""
    run(sys.executable, "-c", WITHOUT)


@pytest.mark.parametrize(("format_", "library"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_library_that_is_missing(monkeypatch: pytest.MonkeyPatch, format_: str, library: str):
    """Prevents: a missing library leads to a traceback that does not show the pip command."""
    for name in [
        name for name in sys.modules if name.startswith(f"tableau_pipeline.lake.{format_}")
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    expected = rf"/lake/orders needs {library}: pip install 'tableau_pipeline\[{format_}\]'"
    with pytest.raises(RefusedError, match=expected):
        current_version(LakeTable(**{format_: "/lake/orders"}))

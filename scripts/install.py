"""Install the package and its extras into the environment of this Python; `make` runs this.

uv takes a quarter of pip's time, but ignores pip's settings. So this script passes uv the settings
for indexes, find-links, certificates and proxy. If uv fails, pip installs the package.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping

_PIP = [sys.executable, "-m", "pip"]
_WHAT = ["--constraint", "constraints.txt", "--editable", ".[dev]"]
# For each setting of pip: uv's environment variable, and the separator between two values. pip
# itself separates values by blanks.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", ""),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
    "proxy": ("ALL_PROXY", ""),
}
# Later sections override earlier sections.
_SECTIONS = ("global", "install", ":env:")


def pip_settings() -> str:
    """Return the settings of pip from its files and the environment; "" if pip fails."""
    listed = subprocess.run([*_PIP, "config", "list"], stdout=subprocess.PIPE, text=True)
    return listed.stdout


def uv_environment(settings: str) -> Mapping[str, str]:
    """Return pip's settings as environment variables for uv.

    Args:
        settings: the output of `pip config list`, such as `global.index-url='https://...'`.
    """
    found = {
        name: ast.literal_eval(value)
        for section in _SECTIONS
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", settings, re.MULTILINE)
    }
    variables = {
        variable: between.join(found[name].split()) if between else found[name]
        for name, (variable, between) in _VARIABLES.items()
        if name in found
    }
    # Let uv take the best version of all indexes, as pip does. By default, uv takes the best
    # version of the first index that has the package.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **variables}


def install() -> int:
    """Install with uv, or with pip if uv fails; return the exit code."""
    quiet = ["install", "--quiet", "--disable-pip-version-check"]
    has_uv = subprocess.run([*_PIP, *quiet, "--constraint", "constraints.txt", "uv"])
    if has_uv.returncode == 0:
        environment = {**os.environ, **uv_environment(pip_settings())}
        uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
        done = subprocess.run([*uv, "--quiet", *_WHAT], env=environment)
        if done.returncode == 0:
            return 0
    sys.stderr.write("uv could not install the package: trying pip\n")
    return subprocess.run([*_PIP, *quiet, *_WHAT]).returncode


if __name__ == "__main__":
    sys.exit(install())

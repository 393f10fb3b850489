"""Paths in the form that Spark expects."""

import re
from pathlib import Path

# Spark treats a path to read as a glob pattern.
_GLOB = re.compile(r"[\\{}\[\]*?]")


def spark_path(path: Path) -> str:
    """Return a path with its scheme, and without escapes."""
    return f"file://{path}"


def exact_path(path: Path) -> str:
    """Escape a path so that Spark reads exactly this path."""
    return _GLOB.sub(r"\\\g<0>", spark_path(path))

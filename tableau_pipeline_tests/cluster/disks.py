"""Keep the disks of hosts on one machine apart."""

import subprocess
from functools import cache
from pathlib import Path

_NAMESPACE = ("unshare", "--map-root-user", "--mount")
# Mounts an empty folder over each of the first arguments, up to "--"; then becomes the command.
_HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit; shift; done; shift; exec "$@"'


def alone(disk: Path) -> list[str]:
    """Return the start of a command that sees this folder, and the ones beside it empty.

    [] if nobody may make such namespaces here; then hosts differ by their environments only.
    """
    if not can_be_hidden():
        return []
    others = [each for each in sorted(disk.parent.iterdir()) if each.is_dir() and each != disk]
    return [*_NAMESPACE, "sh", "-c", _HIDE, "sh", *map(str, others), "--"]


@cache
def can_be_hidden() -> bool:
    """Whether this is Linux, and we may mount folders in a namespace of our own."""
    command = [*_NAMESPACE, "sh", "-c", "mount -t tmpfs none /tmp"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False

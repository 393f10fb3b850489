"""The layout of older releases: a folder for each write, named by its start time.

`<asset key>/v-<time>-<random>/` holds a manifest beside its files. For a partitioned model, each
partition of the write has its own manifest in a folder `_partition=<key>`. The newest manifest of
each partition counts.
"""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import Field

from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Frozen, Part, Snapshot, Span
from tableau_pipeline.hyper.tables import Column

# The number of the one version that all those writes form; the store's own numbers begin after it.
NUMBER = 0
_WRITE = re.compile(r"v-\d{8}T\d{6}\.\d{6}-[0-9a-f]{6}")
_MANIFEST = "manifest.json"


class _Manifest(Frozen):
    """The manifest of a write of a whole model, or of one partition of it."""

    asset_key: str
    partition: str | None = None
    span: Span | None = None
    created_at: datetime
    run_id: str
    columns: tuple[Column, ...]
    fingerprint: Fingerprint
    files: tuple[DataFile, ...]
    comments: dict[str, str] = Field(default_factory=dict)


def is_write(name: str) -> bool:
    """Whether a folder with this name is that of a write."""
    return _WRITE.fullmatch(name) is not None


def read(folder: Path, asset_key: str) -> Snapshot | None:
    """Read what older releases stored of a model, as one version; None if they stored nothing.

    Args:
        folder: the folder of the model.
    """
    found = _newest(folder)
    if not found:
        return None
    last = max((manifest for _, manifest in found), key=lambda each: each.created_at)
    parts = [
        Part(
            partition=manifest.partition,
            span=manifest.span,
            version=NUMBER,
            fingerprint=manifest.fingerprint,
            files=tuple(
                file.model_copy(update={"name": f"{place.relative_to(folder)}/{file.name}"})
                for file in manifest.files
            ),
            columns=None if manifest.columns == last.columns else manifest.columns,
        )
        for place, manifest in found
    ]
    return Snapshot(
        folder=folder,
        asset_key=asset_key,
        number=NUMBER,
        created_at=last.created_at,
        run_id=last.run_id,
        columns=last.columns,
        comments=last.comments,
        parts=tuple(sorted(parts, key=lambda part: part.partition or "")),
    )


def _newest(folder: Path) -> Sequence[tuple[Path, _Manifest]]:
    """Return the newest manifests; the newest write determines whether the model is partitioned."""
    partitions: dict[str, tuple[Path, _Manifest]] = {}
    # The names begin with the time of the write, so they sort by age.
    for write in sorted(filter(lambda path: is_write(path.name), folder.glob("v-*")), reverse=True):
        if whole := _manifest(write):
            return [*partitions.values()] or [(write, whole)]
        for place in write.glob("_partition=*"):
            if place.name not in partitions and (manifest := _manifest(place)):
                partitions[place.name] = (place, manifest)
    return [*partitions.values()]


def _manifest(folder: Path) -> _Manifest | None:
    try:
        text = (folder / _MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return _Manifest.model_validate(json.loads(text))

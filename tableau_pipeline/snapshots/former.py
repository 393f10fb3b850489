"""The layout of older releases: a folder for each write, named by its start time.

`<asset key>/v-<time>-<random>/` holds a manifest beside its files. For a partitioned model, each
partition of the write has its own manifest in a folder `_partition=<key>`. The newest manifest of
each partition counts.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Frozen, Part, Snapshot, Span
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.snapshots.storage import Storage

# The number of the one version that all those writes form; the store's own numbers begin after it.
NUMBER = 0
WRITE = r"v-\d{8}T\d{6}\.\d{6}-[0-9a-f]{6}"
_MANIFEST = re.compile(rf"(?P<folder>{WRITE}(?:/_partition=(?P<partition>[^/]+))?)/manifest\.json")


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


def read(storage: Storage, key: str, *, asset_key: str) -> Snapshot | None:
    """Read what older releases stored of a model, as one version; None if they stored nothing.

    Args:
        key: the key of the folder of the model.
    """
    found = _newest(storage, key)
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
                file.model_copy(update={"name": f"{place}/{file.name}"}) for file in manifest.files
            ),
            columns=None if manifest.columns == last.columns else manifest.columns,
        )
        for place, manifest in found
    ]
    return Snapshot(
        folder=storage.folder(key),
        asset_key=asset_key,
        number=NUMBER,
        created_at=last.created_at,
        run_id=last.run_id,
        columns=last.columns,
        comments=last.comments,
        parts=tuple(sorted(parts, key=lambda part: part.partition or "")),
    )


def _newest(storage: Storage, key: str) -> Sequence[tuple[str, _Manifest]]:
    """Return the newest manifests, each with its folder.

    The newest write determines whether the model is partitioned.
    """
    keys = (entry.key for entry in storage.list(f"{key}/v-"))
    names = filter(None, (_MANIFEST.fullmatch(each.removeprefix(f"{key}/")) for each in keys))
    newest: dict[str, tuple[str, _Manifest]] = {}
    # The names begin with the time of the write, so they sort by age.
    for name in sorted(names, key=lambda each: each[0], reverse=True):
        partition = name["partition"]
        if partition in newest or (text := storage.read(f"{key}/{name[0]}")) is None:
            continue
        found = name["folder"], _Manifest.model_validate_json(text)
        if partition is None:
            return [*newest.values()] or [found]
        newest[partition] = found
    return [*newest.values()]

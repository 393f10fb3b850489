"""A storage without folders, links or a disk, as an object store is one."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tableau_pipeline.snapshots.storage import Entry, Storage
from tableau_pipeline.snapshots.store import SnapshotStore


@dataclass
class MemoryStorage:
    """Contents in a dict, each with the time it was put."""

    contents: dict[str, tuple[bytes, float]] = field(default_factory=dict)

    def put(self, key: str, content: bytes) -> bool:
        mine = (content, time.time())
        return self.contents.setdefault(key, mine) is mine

    def read(self, key: str) -> bytes | None:
        return self.contents[key][0] if key in self.contents else None

    def list(self, prefix: str) -> Iterator[Entry]:
        for key, (_, modified) in [*self.contents.items()]:
            if key.startswith(prefix):
                yield Entry(key, modified)

    def delete(self, key: str) -> bool:
        return self.contents.pop(key, None) is not None


@dataclass(frozen=True)
class StoreOn(SnapshotStore):
    """A store whose manifests are elsewhere than its files."""

    elsewhere: Storage = field(default_factory=MemoryStorage)

    @property
    def storage(self) -> Storage:
        return self.elsewhere

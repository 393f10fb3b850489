"""Store the metadata values that refreshes have set, in files named by a digest of the content."""

import hashlib
import json
from collections.abc import Collection
from datetime import datetime
from pathlib import Path

import obstore

from tableau_pipeline.metadata.merge import Values
from tableau_pipeline.objects.stores import store_at, store_errors

# The name of the empty set of values, which has no file.
NO_VALUES = "nothing"


class WrittenValues:
    """Files of values, each named by a digest of its content.

    Args:
        place: the folder of the files, or its URL in an object store.
    """

    def __init__(self, place: Path | str) -> None:
        self._place = place
        self._known: dict[str, Values] = {NO_VALUES: {}}

    def read(self, name: str) -> Values:
        """Return stored values; {} if the file is missing.

        With {}, every difference from the declaration counts as a user's edit.
        """
        if name not in self._known:
            try:
                with store_errors("Reading", f"{self._place}/{name}.json", may_lack=True):
                    content = bytes(obstore.get(store_at(self._place), f"{name}.json").bytes())
            except FileNotFoundError:
                return {}
            self._known[name] = {tuple(path): value for path, value in json.loads(content)}
        return self._known[name]

    def store(self, values: Values) -> str:
        """Store values that a refresh is about to set; return the name to pass to `read`."""
        text = json.dumps(sorted([list(path), value] for path, value in values.items()))
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        if name not in self._known:
            with store_errors("Writing", f"{self._place}/{name}.json"):
                obstore.put(store_at(self._place), f"{name}.json", text.encode())
            self._known[name] = dict(values)
        return name

    def collect(self, named: Collection[str], before: datetime) -> int:
        """Remove files older than `before` that are not in `named`; return the number removed."""
        with store_errors("Removing values from", str(self._place)):
            files = [file for chunk in obstore.list(store_at(self._place)) for file in chunk]
            old = [file["path"] for file in files if file["last_modified"] < before]
            unused = [path for path in old if path.removesuffix(".json") not in named]
            obstore.delete(store_at(self._place), unused)
        return len(unused)

"""Publish Spark models as Tableau data sources, which Dagster keeps fresh.

`docs/reference/stability.md` defines which names are public. The package imports a public name only
on first use. So `import tableau_pipeline` alone loads neither Dagster nor Spark nor Hyper.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableau_pipeline.components import (
        FileDrop,
        PublishedDatasource,
        TableauPipeline,
        send_batch,
    )
    from tableau_pipeline.components.loading import load_definitions
    from tableau_pipeline.core.snapshot import Snapshot
    from tableau_pipeline.errors import RefreshError, RefusedError
    from tableau_pipeline.hyper import open_hyper
    from tableau_pipeline.ingest import read_files
    from tableau_pipeline.resources import (
        HyperResource,
        SnapshotIOManager,
        SparkResource,
        TableauServerResource,
        data_dir,
        resources_from_env,
    )
    from tableau_pipeline.snapshots.load import read_frame, read_hyper

    __version__: str

__all__ = [
    "FileDrop",
    "HyperResource",
    "PublishedDatasource",
    "RefreshError",
    "RefusedError",
    "Snapshot",
    "SnapshotIOManager",
    "SparkResource",
    "TableauPipeline",
    "TableauServerResource",
    "__version__",
    "data_dir",
    "load_definitions",
    "open_hyper",
    "read_files",
    "read_frame",
    "read_hyper",
    "resources_from_env",
    "send_batch",
]

_MODULES = {
    "FileDrop": "components",
    "HyperResource": "resources",
    "PublishedDatasource": "components",
    "RefreshError": "errors",
    "RefusedError": "errors",
    "Snapshot": "core.snapshot",
    "SnapshotIOManager": "resources",
    "SparkResource": "resources",
    "TableauPipeline": "components",
    "TableauServerResource": "resources",
    "data_dir": "resources",
    "load_definitions": "components.loading",
    "open_hyper": "hyper",
    "read_files": "ingest",
    "read_frame": "snapshots.load",
    "read_hyper": "snapshots.load",
    "resources_from_env": "resources",
    "send_batch": "components",
}


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("tableau_pipeline")
    elif name in _MODULES:
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

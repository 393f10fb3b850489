from pathlib import Path

import dagster as dg
from pydantic import Field
from tableauhyperapi import Connection, CreateMode

from tableau_pipeline.hyper.process import Hyperd, connect, hyper_process


class HyperResource(dg.ConfigurableResource):
    """hyperd, the engine behind `.hyper` files: one process for each run."""

    memory_limit: str = Field(
        default="50%",
        description='Memory limit: an amount such as "4g", or a share of the memory that the run '
        "may use, in a container or on the machine.",
    )
    telemetry: bool = Field(default=False, description="Send usage data to Tableau.")

    @property
    def process(self) -> Hyperd:
        """The running hyperd process."""
        return hyper_process(memory_limit=self.memory_limit, telemetry=self.telemetry)

    def connect(
        self, path: str | Path | None = None, create_mode: CreateMode = CreateMode.NONE
    ) -> Connection:
        """Connect to hyperd, and to the `.hyper` file at `path`, in UTC; a context manager."""
        return connect(self.process, path, create_mode)

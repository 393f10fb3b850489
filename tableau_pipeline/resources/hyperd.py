from pathlib import Path

import dagster as dg
from pydantic import Field
from tableauhyperapi import Connection, CreateMode, HyperProcess

from tableau_pipeline.hyper.process import connect, hyper_process


class HyperResource(dg.ConfigurableResource):
    """hyperd, the engine behind `.hyper` files: one process for each run."""

    memory_limit: str = Field(
        default="50%", description='Memory limit, such as "4g", or a share of all memory.'
    )
    telemetry: bool = Field(default=False, description="Send usage data to Tableau.")

    @property
    def process(self) -> HyperProcess:
        """The running hyperd process."""
        return hyper_process(memory_limit=self.memory_limit, telemetry=self.telemetry)

    def connect(
        self, path: str | Path | None = None, create_mode: CreateMode = CreateMode.NONE
    ) -> Connection:
        """Connect to hyperd, and to the `.hyper` file at `path`, in UTC; a context manager."""
        return connect(self.process, path, create_mode)

"""Run `make demo`: the whole pipeline, against the sandbox of `make dev`.

The sandbox is a local imitation of Tableau Server.
"""

import os
import sys

import dagster as dg

from tableau_pipeline.demo.sandbox_process import local_sandbox
from tableau_pipeline.demo.story import (
    CHAPTERS,
    Line,
    delete_published,
    refresh,
    roll_back_and_release,
    table,
)


def main() -> int:
    """Run all chapters; return 0 if every data source equals its models after each chapter."""
    _write(
        "Flights from New York in 2013: Spark -> snapshots -> .hyper -> a local Tableau Server\n"
    )
    try:
        with local_sandbox() as environment:
            os.environ.update(environment)
            # Set the environment first: the code location reads the variables while it is loaded.
            from tableau_pipeline.definitions import defs

            _write("Loading the code location, which takes some seconds\n")
            # This instance uses the DAGSTER_HOME of `make dev`, whose web UI then shows the runs.
            definitions, instance = defs(), dg.DagsterInstance.get()
            delete_published()
            lines: list[Line] = []
            for chapter in CHAPTERS:
                _write(f"As of {chapter.as_of} ({chapter.title})")
                lines += refresh(chapter, definitions, instance)
            _write("Rolled back by one version, and released")
            lines += roll_back_and_release(definitions, instance)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _write(table(lines))
    _write("\nThe web UI, with these runs and what they published: make dev")
    return 1 if any(line.differences for line in lines) else 0


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""A Dagster logger that shows progress in a terminal."""

import logging
import sys
import time

import dagster as dg


class _ProgressHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._started = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        event: dg.DagsterEvent | None = getattr(record, "dagster_event", None)
        if event is None and record.levelno >= logging.INFO:
            # Dagster puts the run and the step before each message, too much for a terminal.
            text = str(getattr(record, "dagster_meta", {}).get("orig_message") or record.msg)
        elif event and event.event_type_value == "ASSET_MATERIALIZATION":
            materialization = event.step_materialization_data.materialization
            rows = materialization.metadata.get("dagster/row_count")
            count = f"{rows.value:>9,} rows" if rows else ""
            text = f"{materialization.asset_key.to_user_string():22}{count}"
        else:
            return
        sys.stdout.write(f"  {time.monotonic() - self._started:5.1f} s  {text}\n")
        sys.stdout.flush()


@dg.logger
def progress_logger(_context: dg.InitLoggerContext) -> logging.Logger:
    """Log materialized assets and the messages of refreshes, for a person at a terminal."""
    # getLogger would return the same logger for each run, and each would add another handler.
    logger = logging.Logger("progress")
    logger.addHandler(_ProgressHandler())
    return logger

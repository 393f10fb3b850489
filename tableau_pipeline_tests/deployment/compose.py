"""What compose.yaml says, merged as Docker merges it, and deploy/dagster.yaml for several hosts."""

from typing import Any

import yaml

from tableau_pipeline_tests.conftest import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def dagster_yaml_with_logs() -> dict[str, Any]:
    """deploy/dagster.yaml, with the logs of runs in a bucket: a comment at its end says how."""
    text = (ROOT / "deploy" / "dagster.yaml").read_text("utf-8")
    before, heading, logs = text.partition("# compute_logs:\n")
    return yaml.safe_load(before + (heading + logs).replace("# ", ""))

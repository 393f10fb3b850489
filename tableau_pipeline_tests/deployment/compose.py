"""What compose.yaml says, merged as Docker merges it."""

from typing import Any

import yaml

from tableau_pipeline_tests.conftest import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

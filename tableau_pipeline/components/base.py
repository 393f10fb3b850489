"""What the classes of declared keys have in common."""

from typing import Any

import dagster as dg
from pydantic import ConfigDict


class Attributes(dg.Model):
    """Nested keys: an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def keys(value: Any) -> list[str]:
    """Of a mapping, or of what one became."""
    if isinstance(value, dict):
        return list(value)
    return list(type(value).model_fields) if isinstance(value, Attributes) else []

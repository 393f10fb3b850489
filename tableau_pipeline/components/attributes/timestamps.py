"""The key `timestamps`: `utc`, `with_time_zone` or `{zone: ...}`."""

from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Discriminator, Field, Tag

from tableau_pipeline.components.attributes.base import Attributes, keys
from tableau_pipeline.components.attributes.zones import Zone

_WORDS = ("utc", "with_time_zone")


class ZoneAttributes(Attributes):
    """Show instants as the wall clock time of a zone."""

    zone: Zone = Field(description='Name of the time zone: "Europe/Paris".')


def _validate(value: Any) -> Any:
    """Return the value if it is one of the ways to publish an instant.

    Raises:
        ValueError: it is not. The message lists them.
    """
    if _timestamps(value) is None:
        raise ValueError(
            f"timestamps is one of: {', '.join(_WORDS)}, {{zone: Europe/Paris}}; not {value!r}"
        )
    return value


def _timestamps(value: Any) -> str | None:
    if isinstance(value, str):
        return "word" if value in _WORDS else None
    return "zone" if keys(value) == ["zone"] else None


Timestamps = Annotated[
    Annotated[Literal["utc", "with_time_zone"], Tag("word")]
    | Annotated[ZoneAttributes, Tag("zone")],
    Discriminator(_timestamps),
    BeforeValidator(_validate),
]


def clock(timestamps: Timestamps) -> Literal["utc", "with_time_zone"] | ZoneInfo:
    """Convert the key `timestamps` to the core's value, with a `ZoneInfo` for a zone."""
    return ZoneInfo(timestamps.zone) if isinstance(timestamps, ZoneAttributes) else timestamps

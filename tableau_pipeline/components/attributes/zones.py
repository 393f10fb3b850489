"""Time zones by their names."""

from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator

from tableau_pipeline.components.attributes.base import guess


def _known(zone: str) -> str:
    """Return the name itself if such a time zone exists.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        meant = guess(zone, available_timezones())
        raise ValueError(
            f'"{zone}" is not a time zone: {meant}Write it as "Europe/Paris", or UTC'
        ) from None
    return zone


Zone = Annotated[str, AfterValidator(_known)]

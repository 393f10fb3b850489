"""Let hyperd read objects of S3 itself, without a local copy."""

import os

from tableau_pipeline.hyper.types.literals import string_literal

# The arguments of hyperd's s3_location, and the variables by which clients of S3 are set up.
_ARGUMENTS = {
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
_NEEDED = {"access_key_id", "secret_access_key", "region"}


def can_read_in_place(url: str) -> bool:
    """Whether hyperd itself can read the objects of a store.

    It knows neither Azure nor the roles and accounts of machines, and takes for Google Cloud
    Storage only tokens that expire during a refresh.
    """
    return url.startswith("s3://") and _arguments().keys() >= _NEEDED


def s3_location(url: str) -> str:
    """Return SQL for an object that hyperd reads in place. It holds credentials: never log it.

    Source: https://tableau.github.io/hyper-db/docs/sql/external/location
    """
    named = ", ".join(f"{name} => {string_literal(value)}" for name, value in _arguments().items())
    return f"s3_location({string_literal(url)}, {named})"


def _arguments() -> dict[str, str]:
    found = {
        name: next((value for each in variables if (value := os.environ.get(each))), "")
        for name, variables in _ARGUMENTS.items()
    }
    return {name: value for name, value in found.items() if value}

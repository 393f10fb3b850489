"""The asset keys of a data source."""

import re

import dagster as dg


def asset_key_of(name: str) -> str:
    """Return the asset key of a data source with this name, as dagster-tableau derives it."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).lower()


def extract_key(published: str) -> dg.AssetKey:
    """Return the key of the extract asset: the key of the published asset plus `_extract`."""
    return dg.AssetKey.from_user_string(f"{published}_extract")

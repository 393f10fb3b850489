"""How the assets of a data source are called."""

import re

import dagster as dg


def asset_key_of(name: str) -> str:
    """The asset key of a data source of this name, as dagster-tableau writes it."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).lower()


def extract_key(published: str) -> dg.AssetKey:
    """The key of the extract asset: that of the published one, and `_extract`."""
    return dg.AssetKey.from_user_string(f"{published}_extract")

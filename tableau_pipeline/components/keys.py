"""How the two assets of a data source are called."""

import dagster as dg


def extract_key(published: str) -> dg.AssetKey:
    """The key of the extract asset: that of the published one, and `_extract`."""
    return dg.AssetKey.from_user_string(f"{published}_extract")

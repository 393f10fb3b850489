"""The asset keys of a data source, the name of its step, and its upstream assets."""

import hashlib
from collections.abc import Iterable
from itertools import chain

import dagster as dg


def asset_keys(key: str) -> tuple[dg.AssetKey, dg.AssetKey]:
    """Return the keys of the extract and of the published asset of a data source."""
    return dg.AssetKey.from_user_string(f"{key}_extract"), dg.AssetKey.from_user_string(key)


def step_name(key: str) -> str:
    """Return the name of the step that makes both assets of a data source.

    The prefix avoids clashes with the names of users' steps, and with reserved words of Dagster and
    Python, such as "meta" or "class".
    """
    written = safe_name(key)
    # Add a digest, because the keys "a/b" and "a__b", for example, have the same safe name.
    digest = hashlib.sha256(key.encode()).hexdigest()[:6]
    return f"tableau_refresh_{written}" + (f"_{digest}" if written != key else "")


def safe_name(key: str) -> str:
    """Convert a key to a valid name of a step or group."""
    return key.replace("/", "__")


def with_models(datasources: Iterable[str]) -> dg.AssetSelection:
    """Select data sources and all their upstream assets that this code location makes."""
    keys = chain.from_iterable(map(asset_keys, datasources))
    # Leave out external assets, such as tables of dbt, which no run of this code location can make.
    return dg.AssetSelection.assets(*keys).upstream().materializable()

"""Whose a data source is: the keys, tags and file names by which pipelines know their own."""

import re

from tableau_pipeline.errors import SettingError

# Prefixes of the tags that mark a data source as published by a pipeline, and by which deployment.
TAG_PREFIX = "tableau-pipeline:"
INSTANCE_TAG_PREFIX = "tableau-pipeline-instance:"


def asset_key_of(name: str) -> str:
    """Return the asset key of a data source with this name, as dagster-tableau derives it."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).lower()


def tags_of(key: str, instance: str) -> frozenset[str]:
    """Return the tags of the data source with this asset key that a deployment publishes."""
    return frozenset({f"{TAG_PREFIX}{key}", f"{INSTANCE_TAG_PREFIX}{instance}"})


def file_name(key: str) -> str:
    """Return an asset key as a file name; "/" is replaced so that no key nests in another."""
    return key.replace("/", ".")


# TABLEAU_PROJECT_ROOT names the project below which an environment has all its data sources; for
# production there is none. Key, records, tags and files name the root, so that no environment finds
# what belongs to another one, even if they share an instance and a site.
def root_from(value: str) -> str:
    """Return the root in the value of the variable, "" for none.

    Raises:
        RefusedError: a part of the path is empty.
    """
    names = [name.strip() for name in value.split("/")] if value else []
    if not all(names):
        raise SettingError(
            f'TABLEAU_PROJECT_ROOT is "{value}": set it to the path of a project, such as '
            '"Staging/pr-123", without a slash at either end',
        )
    return "/".join(names)


def key_below(key: str, root: str) -> str:
    """Return the key of a data source in an environment: "flights@Staging/pr-123"."""
    return f"{key}@{root}" if root else key


def root_of(key: str) -> str:
    """Return the root in such a key, "" for none."""
    return key.partition("@")[2]

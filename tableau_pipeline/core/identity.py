"""The identity of our data sources: asset keys, tags and file names."""

import re

from tableau_pipeline.errors import SettingError

# A data source has two tags: the first prefix with its asset key, and the second prefix with the id
# of its deployment.
TAG_PREFIX = "tableau-pipeline:"
INSTANCE_TAG_PREFIX = "tableau-pipeline-instance:"


def asset_key_of(name: str) -> str:
    """Derive the asset key of a data source from its name, by the rule of dagster-tableau."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).lower()


def tags_of(key: str, instance: str) -> frozenset[str]:
    """Return the tags by which a deployment marks the data source with this asset key."""
    return frozenset({f"{TAG_PREFIX}{key}", f"{INSTANCE_TAG_PREFIX}{instance}"})


def file_name(key: str) -> str:
    """Convert an asset key to a file name, without "/", which would denote a subfolder."""
    return key.replace("/", ".")


# TABLEAU_PROJECT_ROOT names the root project, below which an environment has all its data sources.
# Production has no root. Keys, records, tags and file names contain the root. So environments do
# not mix even if they share an instance and a site.
def root_from(value: str) -> str:
    """Return the root project from the value of TABLEAU_PROJECT_ROOT; "" if the value is empty.

    Raises:
        SettingError: a part of the path is empty.
    """
    names = [name.strip() for name in value.split("/")] if value else []
    if not all(names):
        raise SettingError(
            f'TABLEAU_PROJECT_ROOT is "{value}": set it to the path of a project, such as '
            '"Staging/pr-123", without a slash at either end',
        )
    return "/".join(names)


def key_below(key: str, root: str) -> str:
    """Return the key of a data source in an environment, such as "flights@Staging/pr-123"."""
    return f"{key}@{root}" if root else key


def root_of(key: str) -> str:
    """Return the root in the key of a data source; "" for a key without a root."""
    return key.partition("@")[2]

import os
from pathlib import Path

from tableau_pipeline.errors import RefusedError


def data_dir() -> Path:
    """Return the folder of snapshots, extracts and locks: PIPELINE_DATA_DIR, if it is set.

    Otherwise it is `data/` in this checkout, if the checkout itself is running. In other projects
    it is `data/` in DAGSTER_HOME, because the records there refer to the snapshots; without
    DAGSTER_HOME, `data/` in the working directory.

    Raises:
        RefusedError: PIPELINE_DATA_DIR is a URL.
    """
    if value := os.environ.get("PIPELINE_DATA_DIR"):
        if "://" in value:
            raise RefusedError(
                f"PIPELINE_DATA_DIR is {value!r}: set it to the path of a folder. Object stores "
                "are not supported."
            )
        return Path(value).absolute()
    checkout, home = Path(__file__).parents[2], os.environ.get("DAGSTER_HOME")
    places = [Path(home or ".").absolute(), Path.cwd()]
    within = any(place.is_relative_to(checkout) for place in places)
    if within and (checkout / "workspace.yaml").exists():
        return checkout / "data"
    return places[0] / "data"

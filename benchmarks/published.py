"""Compare all published rows and columns with the model, by a query in hyperd."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tableauhyperapi import HyperProcess, TableName

from benchmarks.bare import differing_rows
from benchmarks.lineitem import KEY
from tableau_pipeline.publishing.session import PersonalAccessToken, signed_in


def check_published(
    hyper: HyperProcess,
    luid: str,
    wanted: Sequence[str],
    *,
    columns: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
    slices: int = 1,
) -> None:
    """Download a data source, and compare its rows with the model.

    Args:
        wanted: the Parquet files of the model, which may have more columns than `columns`.
        folder: where the download is kept during the comparison; None means the system's temporary
            folder.
        slices: the number of parts in which the rows are compared; see `differing_rows`.

    Raises:
        RuntimeError: rows differ, so the measurement means nothing.
    """
    token = PersonalAccessToken(
        environment["TABLEAU_TOKEN_NAME"], environment["TABLEAU_TOKEN_VALUE"]
    )
    with TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        with signed_in(environment["TABLEAU_SERVER_URL"], credentials=token) as site:
            tdsx = site.download(luid, place)
        with zipfile.ZipFile(tdsx) as package:
            (member,) = (name for name in package.namelist() if name.endswith(".hyper"))
            file = Path(package.extract(member, place))
        tdsx.unlink()
        differing = differing_rows(
            hyper,
            file,
            TableName("Extract", "Extract"),
            files=wanted,
            columns=columns,
            key=KEY,
            slices=slices,
        )
        if differing:
            raise RuntimeError(f"{differing:,} rows differ between the data source and the model")

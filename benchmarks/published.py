"""Is what is published what the model holds? Asked of hyperd, over all rows and columns."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tableauhyperapi import HyperProcess, TableName

from benchmarks.bare import differing_rows
from benchmarks.lineitem import KEY
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.publishing.session.credentials import PersonalAccessToken
from tableau_pipeline.publishing.session.sign_in import signed_in


def check_published(
    hyper: HyperProcess, luid: str, wanted: Snapshot, *, environment: Mapping[str, str]
) -> None:
    """Download a data source and compare.

    Raises:
        RuntimeError: it differs, so that what was measured means nothing.
    """
    token = PersonalAccessToken(
        environment["TABLEAU_TOKEN_NAME"], environment["TABLEAU_TOKEN_VALUE"]
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        with signed_in(environment["TABLEAU_SERVER_URL"], credentials=token) as site:
            tdsx = site.download(luid, folder)
        with zipfile.ZipFile(tdsx) as package:
            (member,) = (name for name in package.namelist() if name.endswith(".hyper"))
            file = Path(package.extract(member, folder))
        differing = differing_rows(
            hyper,
            file,
            TableName("Extract", "Extract"),
            files=wanted.paths,
            columns=[column.name for column in wanted.columns],
            key=KEY,
        )
        if differing:
            raise RuntimeError(f"{differing:,} of the published rows are not those of the model")

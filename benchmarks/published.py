"""Is what is published what the model holds? Asked of hyperd, over all rows and columns."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tableauhyperapi import HyperProcess, TableName, escape_name

from benchmarks.bare import scan
from benchmarks.lineitem import KEY
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.publishing.credentials import PersonalAccessToken
from tableau_pipeline.publishing.site import signed_in
from tableau_pipeline.refresh.snapshot import Snapshot


def check_published(
    hyper: HyperProcess, luid: str, model: Path, *, environment: Mapping[str, str]
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
        if differing := _differing(hyper, file, Snapshot.read(model)):
            raise RuntimeError(f"{differing:,} of the published rows are not those of the model")


def _differing(hyper: HyperProcess, file: Path, model: Snapshot) -> int:
    """Rows without an equal on the other side; none only if keys repeat on neither."""
    published = TableName("Extract", "Extract")
    same_key = " AND ".join(f"p.{c} = m.{c}" for c in map(escape_name, KEY))
    columns = [escape_name(column.name) for column in model.columns]
    differs = " OR ".join(f"p.{c} IS DISTINCT FROM m.{c}" for c in columns)
    with connect(hyper, file) as connection:
        rows = connection.execute_scalar_query(f"SELECT COUNT(*) FROM {published}")
        differing = connection.execute_scalar_query(
            f"SELECT COUNT(*) FROM {published} p FULL JOIN {scan(model.paths)} m ON {same_key} "
            f"WHERE {differs}"
        )
    return differing + abs(rows - model.fingerprint.rows)

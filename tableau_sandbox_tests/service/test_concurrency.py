from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in


@pytest.mark.slow
def test_publishing_and_reading_at_once(
    start_sandbox: Callable[..., Sandbox], one_row: Path, two_rows: Path
):
    # Prevents: two publishes get mixed up, or a reader finds the file gone that it was to read.
    sandbox = start_sandbox(kept_revisions=1)
    contents = {one_row: [[1, "one"]], two_rows: [[1, "one"], [2, "two"]]}

    def server() -> tsc.Server:
        return signed_in(sandbox)

    luid = publish(server(), one_row).id

    def publish_often(file: Path) -> list[str]:
        publisher = server()
        return [publish(publisher, file, mode="Overwrite").id for _ in range(8)]

    def read_often() -> list[list[list]]:
        reader = server()
        return [rows_on_server(reader, luid) for _ in range(8)]

    with ThreadPoolExecutor() as executor:
        publishing = [executor.submit(publish_often, file) for file in contents]
        reading = [executor.submit(read_often) for _ in range(2)]
        assert {found for future in publishing for found in future.result()} == {luid}
        assert all(rows in contents.values() for future in reading for rows in future.result())
    assert len(list((sandbox.data_dir / "content").iterdir())) == 1

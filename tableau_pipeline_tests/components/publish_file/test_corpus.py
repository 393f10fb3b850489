"""Parquet that nobody here wrote: each file is published exactly, or refused with a reason."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline_tests.components.publish_file.conftest import Publish, published
from tableau_pipeline_tests.components.support.corpus import REFUSED, write_corpus
from tableau_pipeline_tests.components.support.location import failure
from tableau_pipeline_tests.conftest import Shipped


@pytest.mark.slow
def test_corpus(tmp_path: Path, publish: Publish, shipped: Shipped):
    """Prevents: a crash, or data that is not the file's, for a file of another writer."""
    write_corpus(tmp_path)
    wrong, refused = [], []
    for path in sorted(tmp_path.glob("*.parquet")):
        name = path.stem
        result = publish(path=str(path), name=f"Corpus {name}", accept=["shrink"])
        if result.success:
            wrong += _differences(name, path, published(shipped, f"Corpus {name}"))
        else:
            refused.append(name)
            assert path.name in failure(result)
    assert not wrong, "\n".join(wrong)
    assert sorted(refused) == sorted(REFUSED)


def _differences(name: str, path: Path, found: pa.Table) -> Iterator[str]:
    expected = pq.read_table(path, partitioning=None)
    if expected.column_names != found.column_names or len(expected) != len(found):
        yield f"{name}: {expected.schema} of {len(expected)} became {found.schema} of {len(found)}"
        return
    try:
        before, after = rows(expected), rows(found)
    except pa.ArrowException as error:
        # One file must not hide the others.
        yield f"{name}: {error}"
        return
    if before != after:
        yield f"{name}: {before[:3]} became {after[:3]}"


def rows(table: pa.Table) -> list[tuple[str, ...]]:
    """By their representation: NaN is not equal to itself. Instants are told in UTC, bare."""
    return sorted(zip(*map(_as_text, table.columns), strict=True))


def _as_text(column: pa.ChunkedArray) -> list[str]:
    type_ = column.type
    if pa.types.is_timestamp(type_):
        column = column.cast(pa.timestamp("us", type_.tz)).cast(pa.timestamp("us"))
    elif pa.types.is_floating(type_):
        column = column.cast(pa.float64())
    values = column.to_pylist()
    if pa.types.is_decimal(type_) and type_.scale == 0:
        values = [None if value is None else int(value) for value in values]
    return list(map(repr, values))

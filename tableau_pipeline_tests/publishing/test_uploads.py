import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.publishing.rest import block_size

MEGABYTE, GIGABYTE = 2**20, 2**30


@pytest.mark.parametrize(
    ("size", "megabytes"),
    [
        (0, 16),
        (GIGABYTE, 16),
        (16_000 * MEGABYTE, 16),
        (16_000 * MEGABYTE + 1, 17),
        (25 * GIGABYTE, 26),
        (63_000 * MEGABYTE, 63),
    ],
)
def test_blocks_grow_with_the_file(size: int, megabytes: int):
    # Prevents: a large file fails after its thousandth block, or a small one takes much memory.
    assert block_size(size) == megabytes * MEGABYTE
    assert -(-size // block_size(size)) <= 1000


def test_file_that_nobody_takes():
    # Prevents: an upload of hours that is bound to fail.
    with pytest.raises(RefusedError, match=r"66,060\.3 MB.*1000 blocks of 66\.06 MB.*fewer"):
        block_size(63_000 * MEGABYTE + 1)


def test_size_that_was_asked_for(monkeypatch: pytest.MonkeyPatch):
    # Prevents: a proxy that lets little through cannot be lived with.
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "5")
    assert block_size(GIGABYTE) == 5 * MEGABYTE
    with pytest.raises(RefusedError, match=r"TSC_CHUNK_SIZE_MB is 5.*11 or more"):
        block_size(10 * GIGABYTE)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "16 MB"])
def test_size_that_is_none(monkeypatch: pytest.MonkeyPatch, value: str):
    # Prevents: a slip in a setting shows as a ValueError without its name.
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", value)
    with pytest.raises(RefusedError, match=f"TSC_CHUNK_SIZE_MB is '{value}'"):
        block_size(1)

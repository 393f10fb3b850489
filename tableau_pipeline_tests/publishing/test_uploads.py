"""Files that are uploaded in several blocks, one after the other or at once."""

import logging
from pathlib import Path

import pytest
import requests

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.uploads import block_size
from tableau_pipeline_tests.publishing.conftest import Shop, finished
from tableau_sandbox.faults import CallFault, Delay, Drop, ExpireSessions, Refuse

BLOCK = {"method": "PUT", "path": "sites/*/fileUploads/*"}


def content(shop: Shop, file: Path, **how: bool) -> bytes:
    """Upload and publish a file; return the content that the server then has."""
    session = shop.site.upload(file, **how)
    sales = shop.sales
    job = shop.site.publish(
        session, name=sales.name, project_id=str(sales.project_id), mode=PublishMode.OVERWRITE
    )
    assert finished(shop.site, job) == (Outcome.DONE, "")
    return shop.sandbox.hyper_file(sales.luid).read_bytes()


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_all_blocks_arrive(
    shop: Shop, large: Path, at_once: bool, caplog: pytest.LogCaptureFixture
):
    """Prevents: blocks arrive in the wrong order or twice, or the progress ends too early."""
    caplog.set_level(logging.INFO)
    # The server answers the first block last.
    with shop.sandbox.armed(Delay(**BLOCK, seconds=0.5)):
        assert content(shop, large, in_any_order=at_once) == large.read_bytes()
    size = large.stat().st_size
    records = [each for each in caplog.records if each.getMessage().startswith("Uploaded ")]
    assert len(records) == -(-size // block_size(size)) > 2
    assert records[-1].getMessage() == f"Uploaded {size / 1e6:.2f} MB"
    shares = [record.__dict__["share"] for record in records]
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize(
    "fault",
    [
        Drop(**BLOCK, nth=2, when="before"),
        Drop(**BLOCK, nth=2, when="after"),
        Refuse(**BLOCK, nth=3, status=429, retry_after=0),
        ExpireSessions(**BLOCK, nth=2),
    ],
    ids=["lost block", "lost answer", "busy", "session ended"],
)
def test_a_block_is_sent_again_alone(shop: Shop, large: Path, fault: CallFault):
    """Prevents: one lost block makes an upload fail, or the file has the block twice."""
    with shop.sandbox.armed(fault) as armed:
        assert content(shop, large, in_any_order=True) == large.read_bytes()
    assert armed.fired == 1


def test_a_block_that_never_arrives(shop: Shop, large: Path):
    """Prevents: an upload that lacks a block passes for complete, or never ends."""
    fault = Drop(**BLOCK, nth=2, times=None, when="before")
    with shop.sandbox.armed(fault), pytest.raises(RefreshError, match="Uploading") as caught:
        shop.site.upload(large, in_any_order=True)
    assert not isinstance(caught.value, RefusedError)


def test_a_file_of_one_block_has_no_number(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a single block is sent with a sequence number, which old servers may reject."""
    urls = []
    real = requests.Session.put
    monkeypatch.setattr(
        requests.Session,
        "put",
        lambda self, url, **more: urls.append(url) or real(self, url, **more),
    )
    shop.site.upload(shop.small, in_any_order=True)
    assert len(urls) == 1
    assert "sequenceID" not in urls[0]

"""The names that catalogs and pyiceberg's settings use for the credentials of files."""

from datetime import UTC, datetime

import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from tableau_pipeline.lake.file_credentials import of_table
from tableau_pipeline.lake.iceberg import LakeIO
from tableau_pipeline.objects.lent import Credentials

Properties = dict[str, str]
S3, GCS = "s3://lake/orders", "gs://lake/orders"
AZURE = "abfss://lake@acme.dfs.core.windows.net/orders"
NONE: Properties = {}
KEYS = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
FOUND = {"access_key_id": "a", "secret_access_key": "b", "token": None}
SAS = "adls.sas-token"
IN_2033 = datetime.fromtimestamp(2_000_000_000, UTC)


def found(
    url: str, settings: Properties, handed_out: Properties, own: Properties = NONE
) -> Credentials | None:
    """A table's credentials; `handed_out` is from the catalog, `own` from the table's owner."""
    metadata = new_table_metadata(
        Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, url, own
    )
    # pyiceberg merges the properties in this order.
    io = LakeIO({**settings, **own, **handed_out})
    return of_table(Table(("orders",), metadata, "", io, NoopCatalog("lake", **settings)), url)


@pytest.mark.parametrize(
    ("url", "handed_out", "secrets"),
    [
        (S3, KEYS, FOUND),
        (S3, {**KEYS, "s3.session-token": "c"}, {**FOUND, "token": "c"}),
        (S3, {"client.access-key-id": "a", "client.secret-access-key": "b"}, FOUND),
        (GCS, {"gcs.oauth2.token": "a"}, {"token": "a"}),
        (AZURE, {"adls.sas-token.acme.dfs.core.windows.net": "?sig=a"}, {"sas_token": "sig=a"}),
        (AZURE, {"adls.sas-token.acme": "sig=a", "adls.sas-token": "b"}, {"sas_token": "sig=a"}),
        (AZURE, {"adls.sas-token": "sig=a"}, {"sas_token": "sig=a"}),
        (AZURE, {"adls.account-key": "a", "adls.account-name": "acme"}, {"access_key": "a"}),
    ],
)
def test_names(url: str, handed_out: Properties, secrets: Properties):
    """Prevents: the pipeline does not find credentials of a catalog, or of the settings."""
    for each in (found(url, NONE, handed_out), found(url, handed_out, NONE)):
        assert each
        assert each.secrets == secrets


@pytest.mark.parametrize(
    ("url", "settings", "handed_out"),
    [
        (S3, NONE, {"s3.access-key-id": "a"}),
        (S3, {"s3.secret-access-key": "b"}, {"s3.access-key-id": "a"}),
        (GCS, NONE, KEYS),
        (AZURE, NONE, {"adls.sas-token.other.dfs.core.windows.net": "sig=a"}),
        (AZURE, {"adls.account-key": "a", "adls.account-name": "other"}, NONE),
        (AZURE, {"adls.sas-token": "sig=a", "adls.account-name": "other"}, NONE),
        ("/lake/orders", KEYS, KEYS),
    ],
)
def test_incomplete(url: str, settings: Properties, handed_out: Properties):
    """Prevents: the pipeline mixes credentials of two sources, or uses another account's."""
    assert found(url, settings, handed_out) is None


def test_both():
    """Prevents: the pipeline mixes credentials of settings and catalog, or loses an endpoint."""
    settings = {
        **dict.fromkeys(KEYS, "own"),
        "s3.session-token": "own",
        "s3.endpoint": "http://own",
        "s3.region": "own",
    }
    both = found(S3, settings, {**KEYS, "s3.region": "there", "s3.path-style-access": "true"})
    assert both
    assert both.secrets == FOUND
    assert both.config == {
        "endpoint": "http://own",
        "region": "there",
        "virtual_hosted_style_request": "false",
    }


def test_properties_of_the_table():
    """Prevents: the properties of a table make the pipeline send credentials to a foreign host."""
    own = {"s3.endpoint": "http://elsewhere", "client.region": "elsewhere"}
    both = found(S3, NONE, KEYS, own)
    assert both
    assert both.config == {}
    assert found(S3, NONE, NONE, {**own, **KEYS}) is None


@pytest.mark.parametrize(
    ("url", "handed_out"),
    [
        (S3, {**KEYS, "s3.session-token-expires-at-ms": "2000000000000"}),
        (GCS, {"gcs.oauth2.token": "a", "gcs.oauth2.token-expires-at": "2000000000000"}),
        *(
            (AZURE, {f"{SAS}{end}": "sig=a", f"{SAS}-expires-at-ms{end}": "2000000000000"})
            for end in ("", ".acme", ".acme.dfs.core.windows.net")
        ),
    ],
)
def test_expiry(url: str, handed_out: Properties):
    """Prevents: the pipeline uses expired credentials until the store refuses them."""
    by_catalog, by_settings = found(url, NONE, handed_out), found(url, handed_out, NONE)
    assert by_catalog
    assert by_catalog.expires_at == IN_2033
    assert by_settings
    # Nothing can renew the credentials in settings, so their expiry is ignored.
    assert by_settings.expires_at is None


def test_an_expiry_that_is_no_number():
    """Prevents: an expiry that is no number ends in an exception of a library."""
    unknown = found(S3, NONE, {**KEYS, "s3.session-token-expires-at-ms": "never"})
    assert unknown
    assert unknown.expires_at is None

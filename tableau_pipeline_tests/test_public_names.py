"""The names that scripts may rely on."""

from types import ModuleType

import pytest

from tableau_pipeline import components, hyper, scripting
from tableau_pipeline.actions import batch
from tableau_pipeline.scripting import spark

PUBLIC: dict[ModuleType, str] = {
    batch: "Action Batch BatchError Delete Insert Replace Upsert all_of source target",
    components: "FileDrop PublishedDatasource TableauPipeline send_batch",
    hyper: "HyperFile HyperFileError TableInfo open_hyper",
    scripting: "Accept Append Calculation ConnectedApp Declaration Diff Feed FieldMetadata Guard "
    "InCatalog LakeTable Members MetadataPolicy Options Partitions Password "
    "PersonalAccessToken Reconcile RefreshError RefusedError Relationship "
    "ReplaceAll Report Republish Retain Table Timeouts refresh signed_in",
    spark: "SnapshotStore read_files spark_session write_snapshot",
}


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_public_names(module: ModuleType):
    """Prevents: a name that somebody's code imports and that goes unnoticed; one that comes so."""
    assert module.__all__ == PUBLIC[module].split()
    assert set(module.__all__) <= set(dir(module))

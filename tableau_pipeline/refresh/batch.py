"""Where `tableau_pipeline.actions.batch` was; gone with the next release."""

from tableau_pipeline.actions.batch import (
    Batch,
    BatchError,
    Delete,
    Insert,
    Replace,
    Update,
    Upsert,
    all_of,
    always,
    any_of,
    source,
    target,
)

__all__ = [
    "Batch",
    "BatchError",
    "Delete",
    "Insert",
    "Replace",
    "Update",
    "Upsert",
    "all_of",
    "always",
    "any_of",
    "source",
    "target",
]

"""The metadata of the desired tables: as declared, and merged into what the server holds."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.desired import Models
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.metadata.digest import Metadata
from tableau_pipeline.metadata.fields import FieldMetadata, Inherited
from tableau_pipeline.metadata.publication import Declared, Merged


def declared_metadata(
    declaration: Declaration,
    desired: Mapping[str, TableContent],
    *,
    models: Models,
    inherited: Inherited,
    kept: Path | str,
) -> Declared:
    """The declared metadata of the desired tables.

    Args:
        inherited: what is said of columns elsewhere, by model and column; it beats the comments of
            the columns in Spark.
        kept: a folder, or its URL in an object store, beside which values that are set are stored.

    Raises:
        RefusedError: something is declared of columns that there are not.
    """
    is_url = isinstance(kept, str)
    columns = {name: [column.name for column in table.columns] for name, table in desired.items()}
    tables = {
        declaration.published_name(name): [
            (column.name, hyper_type(column, table=name)) for column in table.columns
        ]
        for name, table in desired.items()
    }
    return Declared(
        wanted=declaration.wanted(columns, dict(_inherited(declaration, models, inherited))),
        on_conflict=declaration.metadata.on_conflict,
        tables=tables,
        place=f"{kept.rpartition('/')[0]}/metadata" if is_url else kept.with_name("metadata"),
    )


def _inherited(
    declaration: Declaration, models: Models, inherited: Inherited
) -> Iterator[tuple[tuple[str, str], FieldMetadata]]:
    for table in declaration.tables:
        for column in models[table.model].columns:
            said = inherited.get((table.model, column.name), FieldMetadata())
            comment = models[table.model].comments.get(column.name, "")
            yield (table.name, column.name), replace(said, description=said.description or comment)


def merged_metadata(
    declaration: Declaration,
    declared: Declared,
    held: Metadata | None,
    record: Checkpoint | None,
    *,
    is_edited: bool,
) -> Merged | None:
    """What becomes of the metadata on the server; None if there are none to keep or to set.

    Args:
        held: what the server holds.
        record: what is known to be published.

    Raises:
        RefusedError: what is declared cannot be set.
    """
    written = record.written if record else ()
    is_declared = bool(declared.wanted or written)
    if held is None or not (is_declared or is_edited):
        return None
    try:
        merged = declared.merged(held, written, is_edited=is_edited)
    except ValueError as error:
        if is_declared:
            raise RefusedError(str(error)) from error
        return None
    if record and record.declaration != declaration.digest():
        return replace(merged, problem="the declaration changed")
    return merged

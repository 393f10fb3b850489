"""The metadata that are declared for the desired tables."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.extracts.desired import Models
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.metadata.fields import FieldMetadata, Inherited
from tableau_pipeline.metadata.publication import Declared
from tableau_pipeline.metadata.written import Written


def declared_metadata(
    declaration: Declaration,
    desired: Mapping[str, TableContent],
    record: Checkpoint | None,
    *,
    models: Models,
    inherited: Inherited,
    place: Path | str,
    link: str | None,
) -> Declared:
    """The declared metadata of the desired tables.

    Args:
        record: what is known to be published.
        inherited: what is said of columns elsewhere, by model and column; it beats the comments of
            the columns in Spark.
        place: a folder, or its URL in an object store, where values that are set are stored.
        link: the address of the asset in Dagster's web UI; None if that is not known.

    Raises:
        RefusedError: something is declared of columns that there are not.
    """
    columns = {name: [column.name for column in table.columns] for name, table in desired.items()}
    said: dict[tuple[str, str], FieldMetadata] = {}
    for table in declaration.tables:
        for column, comment in models[table.model].comments.items():
            said[table.name, column] = FieldMetadata(description=comment)
        for (model, column), field in inherited.items():
            if model == table.model:
                comment = models[model].comments.get(column, "")
                known = replace(field, description=field.description or comment)
                said[table.name, column] = known
    stored, written = Written(place), record.written if record else ()
    is_other = record and record.declaration != declaration.digest()
    built = f"Built from {', '.join(table.model for table in declaration.tables)}."
    return Declared(
        fields=declaration.wanted(columns, said),
        about=declaration,
        lineage=" ".join(filter(None, (built, link))),
        on_conflict=declaration.metadata.on_conflict,
        tables={
            declaration.published_name(name): [
                (column.name, hyper_type(column, table=name)) for column in table.columns
            ]
            for name, table in desired.items()
        },
        stored=stored,
        pasts=[stored.read(name) for name in written],
        problem="the declaration changed" if is_other else None,
    )

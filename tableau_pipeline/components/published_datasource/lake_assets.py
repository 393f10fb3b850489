"""The external assets of the tables of lakes."""

import dagster as dg

from tableau_pipeline.core.declaration import Declaration


def lake_assets(declaration: Declaration) -> list[dg.AssetSpec]:
    """Return an asset for each table of a lake; data sources may declare the same one."""
    return [
        dg.AssetSpec(
            dg.AssetKey.from_user_string(table.model),
            description=f"The {table.source.format.capitalize()} table {table.source.location}, "
            "read where it is.",
            kinds={table.source.format},
            metadata={"location": str(table.source.location)},
        )
        for table in declaration.tables
        if table.source
    ]

"""The comparison of published rows with the rows of the lake."""

from collections.abc import Mapping

import pyarrow as pa

from tableau_pipeline_tests.refresh.support.pipeline import published_rows, session
from tableau_pipeline_tests.soak.people import Server


def differences(server: Server, wanted: Mapping[str, pa.Table]) -> list[str]:
    """Return a phrase for each data source whose rows differ from the wanted rows."""
    with session(server) as site:
        found = []
        for name, rows in wanted.items():
            items = [*site.tsc.datasources.filter(name=name)]
            if len(items) != 1:
                found.append(f"{name}: {len(items)} data sources have this name")
                continue
            published = published_rows(site, str(items[0].id))
            if problem := _difference(published, rows):
                found.append(f"{name}: {problem}")
    return found


def _difference(published: pa.Table, wanted: pa.Table) -> str:
    if published.column_names != wanted.column_names:
        return f"columns {wanted.column_names} became {published.column_names}"
    if published.num_rows != wanted.num_rows:
        return f"{wanted.num_rows:,} rows became {published.num_rows:,}"
    key = wanted.column_names[0]
    same = published.cast(wanted.schema).sort_by(key).equals(wanted.sort_by(key))
    return "" if same else "rows have other values"

"""Declared data sources for tests: small, valid, and changed where a test says so."""

from typing import Any

from tableau_pipeline.components import PublishedDatasource

STAR: dict[str, Any] = {
    "name": "Shop Orders",
    "project": "Default",
    "tables": {"orders": {}, "customers": {"model": "crm/customers"}},
    "relationships": [{"from": "orders", "to": "customers", "on": {"customer": "id"}}],
}


def declared(**changes: Any) -> PublishedDatasource:
    """The star, with some keys changed."""
    return PublishedDatasource.from_attributes_dict(attributes={**STAR, **changes})

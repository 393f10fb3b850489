"""All facts."""

from tableau_sandbox.facts.fact import Fact
from tableau_sandbox.facts.rest import (
    access,
    bad_updates,
    content,
    datasources,
    jobs,
    lists,
    messages,
    modes,
    publish,
    records,
    updates,
    uploads,
)
from tableau_sandbox.facts.sessions import apps, roles, signing_in, sites, versions
from tableau_sandbox.facts.vds import computing, models, queries, refusals, service

_MODULES = (
    signing_in,
    versions,
    apps,
    sites,
    roles,
    records,
    lists,
    access,
    uploads,
    publish,
    messages,
    modes,
    datasources,
    content,
    updates,
    bad_updates,
    jobs,
    service,
    queries,
    computing,
    models,
    refusals,
)

FACTS: tuple[Fact, ...] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Fact)
)

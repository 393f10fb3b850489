"""Ask Tableau's Metadata API for the ids by which data catalogues identify a site's content."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, cast

import requests
import tableauserverclient as TSC

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.http import WireAdapter
from tableau_pipeline.publishing.site import TableauSite

_QUERY = (
    "query ids($luids: [String]) {publishedDatasources(filter: {luidWithin: $luids}) {id luid}}"
)
_DOING = "Asking the Metadata API for data sources"
_SESSION_IS_GONE = "401002"


def metadata_ids(site: TableauSite, luids: Collection[str]) -> Mapping[str, str]:
    """Return the Metadata API's ids of data sources, with their LUIDs as keys.

    A new data source gets its id some minutes after its first publish. Until then, the result lacks
    the data source.

    Raises:
        RefusedError: the site has no Metadata API, or the user may not ask it.
        RefreshError: the Metadata API failed, or did not answer.
    """
    answer = site.ask(_DOING, partial(_answer, site, {"luids": sorted(luids)}))
    data = answer.get("data") if isinstance(answer, dict) else None
    found = data.get("publishedDatasources") if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise RefreshError(f"{_DOING} failed: it answered {site.hide(str(answer))}")
    return {
        each["luid"]: str(each["id"])
        for each in found
        if isinstance(each, dict) and each.get("luid") in luids and each.get("id")
    }


def _answer(site: TableauSite, variables: Mapping[str, Any]) -> Any:
    url = f"{site.tsc.server_address}/api/metadata/graphql"
    session = site.tsc.session
    # The Metadata API answers in JSON. By default, the adapter expects XML, as from the REST API.
    # So use an adapter that does not expect XML.
    adapter = cast(WireAdapter, session.get_adapter(url))
    if adapter.is_rest:
        session.mount(url, WireAdapter(adapter.wire, retry=adapter.max_retries, is_rest=False))
    response = session.post(
        url,
        json={"query": _QUERY, "variables": variables},
        headers={"X-Tableau-Auth": str(site.tsc.auth_token)},
        **site.tsc.http_options,
    )
    if response.status_code == requests.codes.unauthorized:
        raise TSC.FailedSignInError(_SESSION_IS_GONE, "Unauthorized", "no session", url)
    if 400 <= response.status_code < 500:
        raise RefusedError(
            f"{_DOING} failed with status {response.status_code}: the site has no such API, or "
            "the user may not ask it. On Tableau Server, `tsm maintenance metadata-services "
            "enable` turns it on; without it, set `lineage: {datasource: luid}`",
            code=Code.SERVER,
        )
    response.raise_for_status()
    return response.json()

"""Get the credentials for an Iceberg table's files from its catalog, or pyiceberg's settings."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table import Table

from tableau_pipeline.objects.lent import Credentials

Properties = Mapping[str, Any]

_SAS, _KEY = "adls.sas-token", "adls.account-key"
# For each scheme of URLs, the property with the time of expiry, in milliseconds since 1970.
_EXPIRY = {
    "s3": "s3.session-token-expires-at-ms",
    "gs": "gcs.oauth2.token-expires-at",
    "abfss": "adls.sas-token-expires-at-ms",
}


def of_table(table: Table, url: str) -> Credentials | None:
    """Return the credentials for a table's files; None to use the environment's credentials.

    Prefer credentials that the catalog hands out for the table. Otherwise, use credentials in
    pyiceberg's settings for the catalog.

    Args:
        url: the URL of the folder with the files.
    """
    settings = table.catalog.properties
    handed_out = _handed_out(table)
    if secrets := _secrets_in(handed_out, url):
        expires_at = _expiry_in(handed_out, url)
        return Credentials(secrets, expires_at, _config_in({**settings, **handed_out}, url))
    return of_settings(settings, url)


def of_settings(settings: Properties, url: str) -> Credentials | None:
    """Return the credentials in a catalog's settings; None if they are missing or incomplete."""
    secrets = _secrets_in(settings, url)
    return Credentials(secrets, config=_config_in(settings, url)) if secrets else None


def _handed_out(table: Table) -> Properties:
    """Return the properties that the catalog hands out for access to the files of a table.

    pyiceberg mixes these properties with the catalog's settings and with the table's own
    properties. Leave out the table's own properties: anyone who may change the table can set these
    properties, and could use them to have credentials sent to another host.
    """
    settings, own = table.catalog.properties, table.metadata.properties
    unknown = object()
    # Do not use `table.config` alone: it has only a part of the handed-out properties, and other
    # properties may override its values.
    return {
        name: value
        for name, value in table.io.properties.items()
        if name in table.config
        or value not in (settings.get(name, unknown), own.get(name, unknown))
    }


def _secrets_in(properties: Properties, url: str) -> dict[str, str | None] | None:
    """Return the credentials in properties, under obstore's names; None if they are incomplete."""
    match url.partition("://")[0]:
        case "s3":
            key, secret, token = (
                properties.get(f"s3.{name}") or properties.get(f"client.{name}")
                for name in ("access-key-id", "secret-access-key", "session-token")
            )
            both = {"access_key_id": key, "secret_access_key": secret, "token": token or None}
            return both if key and secret else None
        case "gs":
            token = properties.get("gcs.oauth2.token")
            return {"token": token} if token else None
        case "abfss":
            account = _account_host(url).partition(".")[0]
            if properties.get("adls.account-name", account) != account:
                # Drop properties without an account in their names: these properties belong to
                # another account. Users who may change the table choose the host in the URL, and a
                # token of another account must not be sent to that host.
                properties = {name: properties[name] for name in {*properties} - {_SAS, _KEY}}
            if token := _of_account(properties, _SAS, url):
                return {"sas_token": token.removeprefix("?")}
            key = properties.get(_KEY)
            return {"access_key": key} if key else None
    return None


def _config_in(properties: Properties, url: str) -> dict[str, Any]:
    """Return the settings of S3 in properties, under obstore's names; {} for other stores."""
    if not url.startswith("s3://"):
        return {}
    region = properties.get("s3.region") or properties.get("client.region")
    config = {"endpoint": properties.get("s3.endpoint"), "region": region}
    if str(properties.get("s3.path-style-access")).lower() == "true":
        config["virtual_hosted_style_request"] = "false"
    return {name: value for name, value in config.items() if value}


def _expiry_in(properties: Properties, url: str) -> datetime | None:
    """Return the time of expiry of credentials; None if the properties do not contain the time."""
    value = str(_of_account(properties, _EXPIRY[url.partition("://")[0]], url))
    return datetime.fromtimestamp(int(value) / 1000, UTC) if value.isdecimal() else None


def _of_account(properties: Properties, name: str, url: str) -> str | None:
    """Return a property whose name may end in an Azure account's host or name; None if missing."""
    host = _account_host(url)
    names = (f"{name}.{host}", f"{name}.{host.partition('.')[0]}", name)
    return next((properties[key] for key in names if properties.get(key)), None)


def _account_host(url: str) -> str:
    """Return the host in "abfss://container@account.dfs.core.windows.net/folder"."""
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2]

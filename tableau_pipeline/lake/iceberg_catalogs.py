"""Find Iceberg tables by their catalogs, as pyiceberg's own configuration names these."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tableau_pipeline.core.declaration import InCatalog
from tableau_pipeline.errors import RefreshError, RefusedError

if TYPE_CHECKING:
    from pyiceberg.table import Table

_PROPERTIES = {
    "py-io-impl": "tableau_pipeline.lake.iceberg_files.LakeIO",
    # Catalogs in a database: to read must not create anything.
    "init_catalog_tables": "false",
    # Catalogs that are asked over HTTP: we have credentials of our own for the files.
    "header.X-Iceberg-Access-Delegation": "",
}
# Names of properties by which a catalog hands out credentials for the files of a table.
_CREDENTIALS = re.compile(
    r"(s3|client|gcs|adls|oss|hf)\..*"
    r"(access-?key|account-?key|secret|token|password|credential|connection-?string).*"
)
# What a message about a catalog may repeat of its configuration.
_OPEN = ("type", "uri", "warehouse")
# No text of fewer letters is a secret, and messages are full of such texts.
_SHORT = 3


def load_table(location: InCatalog) -> "Table":
    """Load a table.

    Raises:
        RefusedError: pyiceberg knows no such catalog, the catalog no such table, or the catalog
            hands out credentials.
        RefreshError: the catalog could not be asked.
    """
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    known = _configuration(location)
    try:
        with load_catalog(location.catalog, **{**known, **_PROPERTIES}) as catalog:
            table = catalog.load_table(location.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise RefusedError(
            f'The catalog {location.catalog} has no Iceberg table "{location.table}": correct '
            "`source`, or create the table"
        ) from None
    except RefreshError:
        raise
    except Exception as error:  # noqa: BLE001 - each kind of catalog has errors of its own
        raise RefreshError(
            f"The catalog {location.catalog} cannot be asked for the Iceberg table "
            f"{location.table}: {_said(error, known)}. Check its configuration for pyiceberg and "
            "the network, then run again"
        ) from None
    _refuse_credentials(location, table.io.properties, known)
    return table


def _configuration(location: InCatalog) -> Mapping[str, Any]:
    from pyiceberg.utils.config import Config

    # Read afresh, as pyiceberg's own copy is as old as the process.
    config, name = Config(), location.catalog
    if (found := config.get_catalog_config(name)) is None:
        known = ", ".join(sorted(config.get_known_catalogs())) or "none"
        raise RefusedError(
            f'pyiceberg knows no catalog "{name}", where the Iceberg table {location.table} '
            f"should be; it knows {known}. Correct `source`, or declare the catalog in "
            f".pyiceberg.yaml or by variables such as PYICEBERG_CATALOG__{name.upper()}__URI"
        )
    return found


def _refuse_credentials(
    location: InCatalog, given: Mapping[str, Any], known: Mapping[str, Any]
) -> None:
    """Refuse what a catalog gave beyond its own configuration, by name and never by value."""
    vended = sorted(
        name
        for name, value in given.items()
        if _CREDENTIALS.fullmatch(name) and known.get(name) != value
    )
    if vended:
        raise RefusedError(
            f"The catalog {location.catalog} hands out credentials for the Iceberg table "
            f"{location.table} ({', '.join(vended)}), which are not used: they may expire while "
            "files are read. Let the catalog give none, and give the pipeline its own by the "
            "variables of the store, such as AWS_ACCESS_KEY_ID"
        )


def _said(error: Exception, known: Mapping[str, Any]) -> str:
    """Return the first line of an error without what must stay secret."""
    text = str(error).strip().partition("\n")[0].rstrip(".") or "it gave no reason"
    for secret in sorted(_secrets(known), key=len, reverse=True):
        text = text.replace(secret, "***")
    return f"{type(error).__name__}: {re.sub(r'//[^/@ ]*@', '//', text)}"


def _secrets(known: Mapping[str, Any]) -> Iterator[str]:
    for name, value in known.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif name not in _OPEN:
            yield from (part for part in str(value).split(":") if len(part) > _SHORT)
    if password := _password(str(known.get("uri", ""))):
        yield from (password, unquote(password))


def _password(uri: str) -> str | None:
    try:
        return urlsplit(uri).password
    except ValueError:
        return None

from tableau_pipeline.sandbox.store.database import Database
from tableau_pipeline.sandbox.store.records import ConnectionSettings


def settings(database: Database, datasource: str) -> ConnectionSettings:
    """What was set for the connection of a data source since it was last published."""
    row = database.row("SELECT * FROM connection_settings WHERE datasource = ?", datasource)
    return ConnectionSettings.of(row) if row else ConnectionSettings()


def save_settings(database: Database, datasource: str, changed: ConnectionSettings) -> None:
    """Put settings in the place of the earlier ones."""
    database.change(
        "INSERT OR REPLACE INTO connection_settings"
        " (datasource, server_address, server_port, user_name, embed_password)"
        " VALUES (?, ?, ?, ?, ?)",
        datasource,
        changed.server_address,
        changed.server_port,
        changed.user_name,
        changed.embed_password,
    )


def forget_settings(database: Database, datasource: str) -> None:
    """Go back to what the published file says."""
    database.change("DELETE FROM connection_settings WHERE datasource = ?", datasource)

from tableau_sandbox.access.rules import access_to
from tableau_sandbox.errors import refusal
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import Datasource, Project, User


def check_may(
    database: Database, capability: str, *, user: User, thing: Project | Datasource, code: str
) -> None:
    """Refuse with `code` unless the user has the capability for a project or a data source.

    Raises:
        RestError: the user lacks it.
    """
    if not access_to(database, thing.site).may(user, capability, thing):
        raise refusal(code, f"The user '{user.name}' may not '{capability}' '{thing.name}'.")

from tableau_sandbox.content.hyper_file import HyperContent


class NotPublishableError(ValueError):
    """The content breaks a rule for published data sources; the message names the tables."""


ONE_EXTRACT, ONE_TABLE, ONE_TREE = PROFILES = ("2019.4", "2020.1", "2021.4")


def check_tables(content: HyperContent) -> None:
    """Check that a file has tables, and each of them columns.

    Raises:
        NotPublishableError: it has none, or a table has none.
    """
    if not content.tables:
        raise NotPublishableError("The file contains no tables.")
    for table in content.tables:
        if not table.columns:
            raise NotPublishableError(f'The table "{table.schema}"."{table.name}" has no columns.')


def check_bare_file(content: HyperContent, profile: str = ONE_TREE) -> None:
    """Check the tables of a file that comes without a model, by the rules of servers.

    They are stated in the Hyper API's guide to publishing, for `.hyper` files alone.

    Args:
        content: the content of the file.
        profile: one of `PROFILES`: the release of the servers whose rules apply.

    Raises:
        NotPublishableError: there are several tables where only one is allowed; or assumed foreign
            keys do not connect them into one tree with one fact table; or, with the oldest profile,
            the one table is not "Extract"."Extract".
    """
    names = [(table.schema, table.name) for table in content.tables]
    if profile == ONE_EXTRACT and names != [("Extract", "Extract")]:
        raise NotPublishableError(
            f'The file must contain exactly the table "Extract"."Extract", not {_names(names)}.'
        )
    if len(names) > 1:
        if profile == ONE_TABLE:
            raise NotPublishableError(f"The file must contain one table, not {_names(names)}.")
        _check_tree(content)


def _check_tree(content: HyperContent) -> None:
    tables = [(table.schema, table.name) for table in content.tables]
    parents = {key.parent for key in content.foreign_keys}
    facts = [table for table in tables if table not in parents]
    if len(facts) != 1:
        raise NotPublishableError(
            "The file must contain exactly one fact table, that is, one table to which no assumed"
            f" foreign key leads; it contains {len(facts)}: {_names(facts) or 'none'}."
        )
    unreached = [table for table in tables if table not in _reached(content, facts[0])]
    if unreached:
        raise NotPublishableError(
            "Assumed foreign keys must connect all tables; no chain of them leads from"
            f" {_names(facts)} to {_names(unreached)}."
        )
    if len(content.foreign_keys) != len(tables) - 1:
        shared = [
            table
            for table in tables
            if sum(key.parent == table for key in content.foreign_keys) > 1
        ]
        raise NotPublishableError(
            "Assumed foreign keys must connect the tables into one tree; more than one leads to"
            f" {_names(shared)}."
        )


def _reached(content: HyperContent, start: tuple[str, str]) -> set[tuple[str, str]]:
    reached, ahead = {start}, [start]
    while ahead:
        table = ahead.pop()
        found = {key.parent for key in content.foreign_keys if key.child == table} - reached
        reached |= found
        ahead.extend(found)
    return reached


def _names(tables: list[tuple[str, str]]) -> str:
    return ", ".join(f'"{schema}"."{name}"' for schema, name in tables)

"""TABLEAU_PROJECT_ROOT: the project below which an environment has all its data sources.

Development, staging and each pull request have a root of their own, and production has none. Key,
records, tags and files of a data source name the root, so that no environment finds what belongs
to another one, even if they share an instance and a site.
"""

from dataclasses import fields
from typing import Any

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import RefusedError


def root_from(value: str) -> str:
    """Return the root in the value of the variable, "" for none.

    Raises:
        RefusedError: a part of the path is empty.
    """
    names = [name.strip() for name in value.split("/")] if value else []
    if not all(names):
        raise RefusedError(
            f'TABLEAU_PROJECT_ROOT is "{value}": set it to the path of a project, such as '
            '"Staging/pr-123", without a slash at either end'
        )
    return "/".join(names)


def key_below(key: str, root: str) -> str:
    """Return the key of a data source in an environment: "flights@Staging/pr-123"."""
    return f"{key}@{root}" if root else key


def root_of(key: str) -> str:
    """Return the root in such a key, "" for none."""
    return key.partition("@")[2]


def below(declaration: Declaration, root: str) -> Declaration:
    """Return a declaration in the environment below a root, "" for none."""
    if not root:
        return declaration
    project = declaration.project
    names = project.split("/") if isinstance(project, str) else project
    placed: dict[str, Any] = {
        "project": (*root.split("/"), *names),
        "key": key_below(declaration.key, root),
        "create_project": True,
    }
    # A component is more than a declaration, and its key has no environment.
    values = {each.name: getattr(declaration, each.name) for each in fields(Declaration)}
    return Declaration(**values | placed)

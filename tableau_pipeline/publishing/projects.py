"""Projects by their path: names are unique below one parent only."""

import tableauserverclient as TSC

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.publishing.query import named, same_name


def find_project(server: TSC.Server, path: str) -> str | None:
    """The id of the project at a path; None if there is none, or none that this user may see."""
    parent: str | None = None
    for name in _names(path):
        found = _child(server, name, parent)
        if found is None:
            return None
        parent = found.id
    return parent


def project_id(server: TSC.Server, path: str, *, create: bool) -> str:
    """The id of the project at a path such as "Aviation/Curated".

    Raises:
        RefusedError: a project of the path is missing and `create` is false; names what there is.
    """
    parent: str | None = None
    names = _names(path)
    for depth, name in enumerate(names):
        found = _child(server, name, parent)
        if found is None and not create:
            where = f'in "{"/".join(names[:depth])}"' if depth else "on the site"
            raise RefusedError(
                f'Project "{path}": there is no project "{name}" {where}, or this user may not see '
                "it. Create it, correct `project:`, or set create_project: true."
            )
        if found is None:
            found = server.projects.create(TSC.ProjectItem(name, parent_id=parent))
        parent = found.id
    return str(parent)


def _names(path: str) -> list[str]:
    return [name.strip() for name in path.split("/")]


def _child(server: TSC.Server, name: str, parent: str | None) -> TSC.ProjectItem | None:
    for project in named(server.projects, name):
        if same_name(project.name, name) and (project.parent_id or None) == parent:
            return project
    return None

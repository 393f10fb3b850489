"""Projects by their path: names are unique below one parent only."""

import tableauserverclient as TSC

from tableau_pipeline.publishing.query import named
from tableau_pipeline.refresh.errors import RefusedError


def project_id(server: TSC.Server, path: str, *, create: bool) -> str:
    """The id of the project at a path such as "Aviation/Curated".

    Raises:
        RefusedError: a project of the path is missing and `create` is false; names what there is.
    """
    parent: str | None = None
    names = [name.strip() for name in path.split("/")]
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


def _child(server: TSC.Server, name: str, parent: str | None) -> TSC.ProjectItem | None:
    for project in named(server.projects, name):
        # Project names differ by more than case.
        if (
            str(project.name).casefold() == name.casefold()
            and (project.parent_id or None) == parent
        ):
            return project
    return None

"""Projects by path or LUID; their names are unique only within one parent."""

from contextlib import suppress

import tableauserverclient as TSC

from tableau_pipeline.core.declaration import Project, ProjectLuid, project_path
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.publishing.lookup import every, named, same_name


def find_project(server: TSC.Server, project: Project) -> str | None:
    """Return the id of a project; None if there is none, or none that this user may see."""
    with suppress(RefusedError):
        return project_id(server, project, create=False)
    return None


def project_id(server: TSC.Server, project: Project, *, create: bool) -> str:
    """Return the id of a project, after creating the missing part of its path if allowed.

    Raises:
        RefusedError: no project has this LUID, or one on its path is missing and `create` is
            false. The message lists the existing ones.
    """
    if isinstance(project, ProjectLuid):
        if any(item.id == project.luid for item in every(server.projects)):
            return project.luid
        raise RefusedError(
            f"There is no project {project.luid} on the site, or this user may not see it. Correct "
            "the LUID in `project:`, or name the project by its path."
        )
    parent: str | None = None
    names = project if isinstance(project, tuple) else [name.strip() for name in project.split("/")]
    for depth, name in enumerate(names):
        item = _child(server, name, parent)
        if item is None and not create:
            where = f'in "{"/".join(names[:depth])}"' if depth else "on the site"
            raise RefusedError(
                f'Project "{project_path(project)}": there is no project "{name}" {where}, or this '
                "user may not see it. Create it, correct `project:`, or set create_project: true."
            )
        if item is None:
            item = server.projects.create(TSC.ProjectItem(name, parent_id=parent))
        parent = item.id
    return str(parent)


def _child(server: TSC.Server, name: str, parent: str | None) -> TSC.ProjectItem | None:
    for project in named(server.projects, name):
        if same_name(project.name, name) and (project.parent_id or None) == parent:
            return project
    return None

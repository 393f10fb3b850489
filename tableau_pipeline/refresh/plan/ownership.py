"""Whose data source it is, and what people made in it: why a refresh leaves it alone."""

from collections.abc import Mapping, Sequence

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.server import Metadata, RemoteDatasource
from tableau_pipeline.refresh.recover.observe import Published

# How many names of each kind a message lists.
_LISTED = 30
# How many data sources a message lists.
_SHOWN = 5
_SAVED = (
    "Run again with accept: [overwrite]: that run saves the data source as a .tdsx file in the "
    'folder "kept" of the data directory before, from which Tableau Desktop can copy that work back'
)


def not_ours(declaration: Declaration, published: Published, *, takeover: bool) -> str | None:
    """Why the data source must not be touched; None if it may be.

    Args:
        takeover: the run may take over what another deployment or another key publishes.
    """
    remote = published.remote
    if remote is None:
        return None
    if len(published.strays) > 1:
        places = ", ".join(_place(each) for each in published.strays[:_SHOWN])
        return (
            f'Several data sources carry the tag "{declaration.tag}": {places}. Nothing was '
            "changed. Remove the tag from all but one of them"
        )
    if published.other_key and not takeover:
        return _of_another_key(declaration, remote, published.other_key)
    if not published.is_ours and not declaration.adopt and not published.other_key:
        return (
            f'A data source "{remote.name}" exists in project "{declaration.project_path}" that '
            "this pipeline did not publish. Nothing was changed: choose another name, or set "
            "adopt: true to take it over, which replaces its data. Calculated fields, captions and "
            "folders stay if its tables and columns are the same; otherwise the next refresh "
            "lists what would go, and asks"
        )
    if published.other_instance and not takeover:
        return _of_another_deployment(published, remote, published.other_instance)
    if published.strays and not takeover:
        return (
            f"{_place(remote)} carries the tag of this data source "
            f'("{declaration.tag}"), under another name or in another project than declared, and '
            "no record of this deployment names it. Nothing was created. Run once with accept: "
            "[takeover] to go on with it where it is; or remove the tag from it, or delete it, to "
            f'publish a new one as "{declaration.name}" in "{declaration.project_path}"'
        )
    return published.move.taken if published.move else None


def _of_another_key(declaration: Declaration, remote: RemoteDatasource, key: str) -> str:
    return (
        f'"{remote.name}" is published under the key "{key}", by this deployment (tag '
        f'"tableau-pipeline:{key}"). Nothing was changed. If "{key}" is the former `key` of this '
        f'declaration, run once with accept: [takeover], to go on with it as "{declaration.key}". '
        "If another declaration has that key, give one of the two another name or project"
    )


def _of_another_deployment(published: Published, remote: RemoteDatasource, instance: str) -> str:
    stray = published.strays and (
        "It has the key of this declaration, but another name or project: if both are to be "
        "published, give this one a `key` of its own. Otherwise, r"
    )
    return (
        f"{_place(remote)} is published by another deployment of this pipeline (tag "
        f'"{instance}"). {stray or "R"}emove it from one of the two, or let this one take it over: '
        "run once with accept: [takeover], or set TABLEAU_TAKEOVER=true for a whole deployment "
        "whose records were lost"
    )


def must_overwrite(published: Published, changes: Sequence[str]) -> list[str]:
    """The refusal of an overwrite that would drop the work of people; [] if it drops none."""
    remote = published.remote
    if remote is None or not published.is_edited or not changes:
        return []
    why = "its metadata is not as we left it"
    if not published.is_ours:
        why = "another user made it"
    elif not published.left:
        why = "no record shows what its metadata was when we left it"
    return [
        f'"{remote.name}" must be overwritten, because {", ".join(changes)}, but {why}. An '
        f"overwrite drops {work_in(published.metadata)}. {_SAVED}"
    ]


def work_in(metadata: Metadata | None) -> str:
    """What people made in a data source, by name, as far as it has names."""
    if metadata is None or not metadata.work:
        return "whatever calculated fields, captions, folders and formats people made in it"
    return "; ".join(f"{kind} {_listed(names)}" for kind, names in metadata.work.items())


def layout_changes(
    found: Mapping[str, Mapping[str, str]], wanted: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """In what the tables of a published file differ from those to publish, as phrases.

    Args:
        found: the SQL types of the columns, by table and column; so `wanted`.
    """
    before = {(table, name): type_ for table in found for name, type_ in found[table].items()}
    after = {(table, name): type_ for table in wanted for name, type_ in wanted[table].items()}
    return [
        *(f"{'.'.join(key)} ({before[key]}) would go" for key in before if key not in after),
        *(f"{'.'.join(key)} ({after[key]}) is new" for key in after if key not in before),
        *(
            f"{'.'.join(key)} is {before[key]} and would be {after[key]}"
            for key in after
            if key in before and before[key] != after[key]
        ),
    ]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:_LISTED])
    more = len(names) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def _place(remote: RemoteDatasource) -> str:
    return f'"{remote.name}" ({", ".join(filter(None, (remote.luid, remote.link)))})'

from typing import Any

import pytest
import tableauserverclient as tsc


def create(server: tsc.Server, name: str, parent: str | None = None) -> Any:
    return server.projects.create(tsc.ProjectItem(name, parent_id=parent, description="d"))


def test_nested_projects_are_found_by_path(server: tsc.Server):
    # Prevents: nested projects cannot be created, or are found under the wrong parent.
    aviation = create(server, "Aviation")
    curated = create(server, "Curated", aviation.id)
    create(server, "Curated")
    assert (curated.parent_id, curated.top_level_project) == (aviation.id, False)
    found = server.projects.get_by_path("aviation/Curated")
    assert found is not None
    assert found.id == curated.id
    assert [p.id for p in server.projects.filter(parent_project_id=aviation.id)] == [curated.id]
    on_top = {p.name for p in server.projects.filter(top_level_project=True)}
    assert on_top == {"Default", "Aviation", "Curated"}


def test_get_update_move_delete(server: tsc.Server, one_row):
    # Prevents: asking for a project changes it, or deleting one leaves its content behind.
    outer, inner = create(server, "Outer"), create(server, "Inner")
    same = server.projects.get_by_id(inner.id)
    assert (same.name, same.description, same.parent_id) == ("Inner", "d", None)
    inner.parent_id, inner.name = outer.id, "Innermost"
    assert server.projects.update(inner).parent_id == outer.id
    item = tsc.DatasourceItem(inner.id, name="Inside")
    inside: Any = server.datasources.publish(item, one_row, "CreateNew")
    with pytest.raises(tsc.ServerResponseError, match="400000"):
        server.projects.update(tsc.ProjectItem("Outer", id=outer.id, parent_id=inner.id))
    server.projects.delete(outer.id)
    assert [p.name for p in server.projects.get()[0]] == ["Default"]
    with pytest.raises(tsc.ServerResponseError, match="404004"):
        server.datasources.get_by_id(inside.id)

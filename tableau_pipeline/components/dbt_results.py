"""The result of dbt's last command, from run_results.json and the manifest beside it."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from pydantic import AliasPath, BaseModel, Field, ValidationError
from upath import UPath

_BUILDS = ("run", "build", "retry")
_GOOD = ("success", "pass", "warn", "no-op", "reused")
_TABLES = ("model", "seed", "snapshot")


class NotABuildError(Exception):
    """There is no invocation to follow; the message states why. A later look may find one."""


class _Result(BaseModel):
    unique_id: str
    status: str


class Invocation(BaseModel):
    """One `dbt run`, `build` or `retry`.

    Attributes:
        id: dbt's invocation id.
        results: of each node that it ran or skipped. A retry lists only what had failed before, so
            a missing node is no obstacle.
        parents: the parents of each node, in the manifest. Those of a test are the models that it
            tests.
    """

    id: str = Field(validation_alias=AliasPath("metadata", "invocation_id"))
    command: str = Field(validation_alias=AliasPath("args", "which"))
    results: list[_Result]
    parents: Mapping[str, list[str]] = {}

    def obstacle(self, models: Iterable[str] | None) -> str | None:
        """Return why assets made of these models must not be refreshed; None if they may be.

        Args:
            models: names or unique ids; None for all models of the dbt project.
        """
        mine = [
            each
            for each in self.results
            if models is None or self._concerns(each.unique_id, set(models))
        ]
        if not mine:
            return f"{', '.join(models)}: not part of it" if models else "it built no models"
        bad = [f"{each.unique_id}: {each.status}" for each in mine if each.status not in _GOOD]
        return ", ".join(bad) or None

    def _concerns(self, node: str, models: set[str]) -> bool:
        """Whether a node affects these models. A test without known parents affects them all."""
        is_table = node.split(".")[0] in _TABLES
        tested = [node] if is_table else self.parents.get(node)
        # A unique id is model.<project>.<name>, or model.<project>.<name>.v2.
        return tested is None or any(
            each in models or bool(models.intersection(each.split(".")[2:3])) for each in tested
        )


class _Manifest(BaseModel):
    parent_map: dict[str, list[str]] = {}


def read_invocation(run_results: str, *, seen: str | None) -> Invocation:
    """Read dbt's last invocation.

    Args:
        run_results: path or URL of run_results.json.
        seen: the id of an invocation that was already followed.

    Raises:
        NotABuildError: the file does not exist, dbt is still writing it, it is the result of
            another command, or its invocation is the one already seen.
    """
    path = UPath(run_results)
    try:
        found = Invocation.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise NotABuildError(f"{run_results}: there is no such file") from error
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise NotABuildError(
            f"{run_results} cannot be read, perhaps because dbt is writing it: {wrong}"
        ) from error
    if found.id == seen:
        raise NotABuildError(f"dbt's last invocation, {seen}, was already followed")
    if found.command not in _BUILDS:
        raise NotABuildError(
            f"dbt's last command was `{found.command}`: only {', '.join(_BUILDS)} count"
        )
    # Without the parents every test counts for all models: a refresh too few, but none on bad data.
    with suppress(FileNotFoundError, ValidationError):
        manifest = path.with_name("manifest.json").read_bytes()
        parents = _Manifest.model_validate_json(manifest).parent_map
        return found.model_copy(update={"parents": parents})
    return found

"""The result of dbt's last command, from run_results.json and the manifest beside it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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


class _RunResults(BaseModel):
    invocation_id: str = Field(validation_alias=AliasPath("metadata", "invocation_id"))
    which: str = Field(validation_alias=AliasPath("args", "which"))
    results: list[_Result]


class _Manifest(BaseModel):
    parent_map: dict[str, list[str]] = {}


@dataclass(frozen=True)
class Invocation:
    """One `dbt run`, `build` or `retry`.

    Attributes:
        id: dbt's invocation id.
        statuses: the status of each node that it ran or skipped, by unique id. A retry lists
            only what had failed before, so a missing node is no obstacle.
        parents: the parents of each node. The parents of a test are the models that it tests.
    """

    id: str
    statuses: Mapping[str, str]
    parents: Mapping[str, list[str]]

    def obstacle(self, models: Iterable[str] | None) -> str | None:
        """Return why assets made of these models must not be refreshed; None if they may be.

        Args:
            models: names or unique ids; None for all models of the dbt project.
        """
        mine = {
            node: status
            for node, status in self.statuses.items()
            if models is None or self._concerns(node, set(models))
        }
        if not mine:
            return f"{', '.join(models)}: not part of it" if models else "it built no models"
        bad = [f"{node}: {status}" for node, status in mine.items() if status not in _GOOD]
        return ", ".join(bad) or None

    def _concerns(self, node: str, models: set[str]) -> bool:
        """Whether a node affects these models. A test without known parents affects them all."""
        if node.split(".")[0] in _TABLES:
            return _is_one_of(node, models)
        tested = self.parents.get(node)
        return tested is None or any(_is_one_of(each, models) for each in tested)


def _is_one_of(node: str, models: set[str]) -> bool:
    """Whether a unique id, model.<project>.<name> or model.<project>.<name>.v2, is in a set."""
    return node in models or bool(models.intersection(node.split(".")[2:3]))


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
        results = _RunResults.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise NotABuildError(f"{run_results}: there is no such file") from error
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise NotABuildError(
            f"{run_results} cannot be read, perhaps because dbt is writing it: {wrong}"
        ) from error
    if results.invocation_id == seen:
        raise NotABuildError(f"dbt's last invocation, {seen}, was already followed")
    if results.which not in _BUILDS:
        raise NotABuildError(
            f"dbt's last command was `{results.which}`: only {', '.join(_BUILDS)} count"
        )
    return Invocation(
        id=results.invocation_id,
        statuses={each.unique_id: each.status for each in results.results},
        parents=_parents(path.with_name("manifest.json")),
    )


def _parents(manifest: UPath) -> Mapping[str, list[str]]:
    try:
        return _Manifest.model_validate_json(manifest.read_bytes()).parent_map
    # Without the parents every test counts for all models: a refresh too few, but none on bad data.
    except (FileNotFoundError, ValidationError):
        return {}

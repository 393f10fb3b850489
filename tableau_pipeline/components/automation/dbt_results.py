"""What dbt's last command came to: run_results.json, and the manifest beside it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError
from upath import UPath

_BUILDS = ("run", "build", "retry")
_GOOD = ("success", "pass", "warn", "no-op", "reused")
_TABLES = ("model", "seed", "snapshot")


class NotABuildError(Exception):
    """There is nothing to follow, and why; the next look may find something."""


class _Metadata(BaseModel):
    invocation_id: str


class _Arguments(BaseModel):
    which: str


class _Result(BaseModel):
    unique_id: str
    status: str


class _RunResults(BaseModel):
    metadata: _Metadata
    args: _Arguments
    results: list[_Result]


class _Manifest(BaseModel):
    parent_map: dict[str, list[str]] = {}


@dataclass(frozen=True)
class Invocation:
    """One `dbt run`, `build` or `retry`.

    Attributes:
        id: dbt's own.
        statuses: of each node that it ran or skipped, by unique id. A retry has only what had
            failed before, so what is absent is no obstacle.
        parents: of each node; of which a test is, they are what it looks at.
    """

    id: str
    statuses: Mapping[str, str]
    parents: Mapping[str, list[str]]

    def obstacle(self, models: Iterable[str] | None) -> str | None:
        """Why what is made of these models shall not be refreshed; None if it shall.

        Args:
            models: names or unique ids; None: all that dbt has.
        """
        mine = {
            node: status
            for node, status in self.statuses.items()
            if models is None or self._concerns(node, set(models))
        }
        if not mine:
            return f"{', '.join(models)} had no part in it" if models else "it built nothing"
        bad = [f"{node}: {status}" for node, status in mine.items() if status not in _GOOD]
        return ", ".join(bad) or None

    def _concerns(self, node: str, models: set[str]) -> bool:
        """A test that no manifest explains concerns everybody."""
        if node.split(".")[0] in _TABLES:
            return _is_one_of(node, models)
        tested = self.parents.get(node)
        return tested is None or any(_is_one_of(each, models) for each in tested)


def _is_one_of(node: str, models: set[str]) -> bool:
    """A unique id reads model.<project>.<name>, or model.<project>.<name>.v2."""
    return node in models or bool(models.intersection(node.split(".")[2:3]))


def read_invocation(run_results: str, *, seen: str | None) -> Invocation:
    """Dbt's last invocation.

    Args:
        run_results: path or URL of run_results.json.
        seen: the id of an invocation that was followed already.

    Raises:
        NotABuildError: there is no such file, dbt still writes it, it is of another command, or of
            the invocation that was seen.
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
    invocation = results.metadata.invocation_id
    if invocation == seen:
        raise NotABuildError(f"dbt's last invocation, {invocation}, is dealt with")
    if results.args.which not in _BUILDS:
        raise NotABuildError(
            f"dbt's last command was `{results.args.which}`: only {', '.join(_BUILDS)} count"
        )
    return Invocation(
        id=invocation,
        statuses={each.unique_id: each.status for each in results.results},
        parents=_parents(path.with_name("manifest.json")),
    )


def _parents(manifest: UPath) -> Mapping[str, list[str]]:
    try:
        return _Manifest.model_validate_json(manifest.read_bytes()).parent_map
    except (FileNotFoundError, ValidationError):
        return {}

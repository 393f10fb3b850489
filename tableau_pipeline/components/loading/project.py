"""Load a code location so that each mistake is reported in one line."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import yaml
from dagster.components.core.component_tree import ComponentTreeException
from pydantic import ValidationError

from tableau_pipeline.components.attributes.base import DeclarationError
from tableau_pipeline.components.loading.problems import (
    column_problems,
    datasources_of,
    repeated_keys,
    repeated_places,
    unknown_models,
    unstored_models,
)

# Replacements for pydantic's messages that do not state what to write.
_WORDS = MappingProxyType(
    {
        "missing": "this key is missing",
        "model_type": "this key takes nested keys: write them under it, or {}",
        "dict_type": "this key takes nested keys: write them under it",
        "list_type": "this is a list: write [a, b]",
        "string_type": 'this is a string: write "..."',
    }
)
_YAML = MappingProxyType(
    {
        "cannot start any token": "YAML allows neither a tab nor a value that begins like this: "
        "indent with spaces, and put the value in quotes",
        "mapping values are not allowed here": "a second colon, or a wrong indent: put a value "
        "that contains a colon in quotes, and indent keys like their neighbours",
        "expected <block end>": "a wrong indent: indent keys like their neighbours",
    }
)


def load_definitions(folder: Path) -> dg.Definitions:
    """Load what `dg.load_from_defs_folder` finds in `defs/`, and check it as a whole.

    `dg check defs` also compares the declared columns with the newest snapshots of the models.

    Args:
        folder: the folder of `definitions.py`.

    Raises:
        DeclarationError: one line for each mistake: file, line, key, and what is allowed there.
    """
    with _in_lines():
        definitions = dg.load_from_defs_folder(path_within_project=folder)
    datasources = datasources_of(definitions)
    looks: list[Callable[..., list[str]]] = [
        repeated_keys,
        repeated_places,
        unknown_models,
        unstored_models,
    ]
    # Only in `dg check defs`: it reads each model's newest snapshot, too slow for every run. In a
    # server it would also prevent materializing a model whose columns have changed.
    if os.environ.get("DAGSTER_IS_DEFS_VALIDATION_CLI"):
        looks.append(column_problems)
    for look in looks:
        if problems := look(definitions, datasources):
            raise DeclarationError("\n".join(problems))
    return definitions


@contextmanager
def _in_lines() -> Generator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        raise DeclarationError(_of_yaml(error)) from None
    except ComponentTreeException as error:
        match error.__cause__:
            case DeclarationError() as cause:
                raise cause from None
            case ValidationError() as cause:
                raise DeclarationError("\n".join(map(_of_key, cause.errors()))) from None
        # Whatever is not a mistake in the YAML keeps its traceback, which its author needs.
        raise


def _of_key(error: Any) -> str:
    """Format a pydantic error, in which Dagster has put the place in the file."""
    key, _, place = str(error["loc"][0]).partition(" at ")
    problem = _WORDS.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
    return f"{place}: {key}: {problem}" if place else f"{key}: {problem}"


def _of_yaml(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{mark.name}:{mark.line + 1}: " if mark else ""
    problem = str(error.problem)
    words = [words for known, words in _YAML.items() if known in problem]
    return f"{place}this is not YAML: {words[0] if words else problem}"

"""How the components of this package are read from YAML."""

from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel

from tableau_pipeline.components.attributes.base import Attributes
from tableau_pipeline.components.attributes.json_schema import without_alternatives
from tableau_pipeline.components.yaml_component.ignored_files import refuse_passed_over
from tableau_pipeline.components.yaml_component.repeated_keys import refuse_repeated_keys


class YamlComponent(dg.Component, dg.Resolvable, Attributes):
    """A component that is its own model of the YAML."""

    # Dagster would derive a looser model, whose errors name only the outermost key.
    @classmethod
    def model(cls) -> type[Self]:
        """The class that reads the YAML: this one."""
        return cls

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Return the JSON schema for editors and `dg check yaml`."""
        return without_alternatives(super().model_json_schema(*arguments, **options))

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Fill in templates such as `{{ env.X }}`.

        Raises:
            DeclarationError: the file repeats a key, such as a second trigger, or Dagster would
                skip models beside it.
        """
        if tree := context.source_position_tree:
            file = Path(tree.position.filename)
            refuse_repeated_keys(file)
            refuse_passed_over(file)
        # Most files have no template, and Dagster's resolution visits every key.
        if isinstance(model, cls) and "{{" not in repr(model):
            return model
        attributes = model.model_dump(by_alias=True, exclude_unset=True)
        return cls.model_validate(context.resolve_value(attributes))

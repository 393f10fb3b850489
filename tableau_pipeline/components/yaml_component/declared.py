"""How a component of ours is read from YAML."""

from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel

from tableau_pipeline.components.attributes.base import Attributes
from tableau_pipeline.components.attributes.json_schema import without_alternatives
from tableau_pipeline.components.yaml_component.ignored_files import refuse_passed_over
from tableau_pipeline.components.yaml_component.repeated_keys import refuse_repeated_keys


class Declared(dg.Component, dg.Resolvable, Attributes):
    """A component that is its own model of the YAML."""

    # Dagster would derive a looser one, whose errors name the outermost key only.
    @classmethod
    def model(cls) -> type[Self]:
        """The class that reads the YAML: this one."""
        return cls

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
        """For editors and `dg check yaml`."""
        return without_alternatives(super().model_json_schema(*arguments, **options))

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Fill in `{{ env.X }}` and the like.

        Raises:
            DeclarationError: the file has a key twice, such as two triggers; or Dagster would pass
                over models beside it.
        """
        if tree := context.source_position_tree:
            file = Path(tree.position.filename)
            refuse_repeated_keys(file)
            refuse_passed_over(file)
        # Most have nothing to fill in, and Dagster walks through every key.
        if isinstance(model, cls) and "{{" not in repr(model):
            return model
        attributes = model.model_dump(by_alias=True, exclude_unset=True)
        return cls.model_validate(context.resolve_value(attributes))

"""`dg scaffold defs tableau_pipeline.components.PublishedDatasource <name>`."""

import re
from pathlib import Path
from string import Template

import dagster as dg

from tableau_pipeline.components.asset_keys import asset_key_of

_TEMPLATE = Path(__file__).with_name("new_datasource.yaml")


class PublishedDatasourceScaffolder(dg.Scaffolder):
    """Writes a `defs.yaml` that is valid as it stands, with a comment on each key."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write the file. The folder's name becomes the name of data source, table and model.

        Raises:
            ValueError: the format is not YAML, or a `defs.yaml` already exists.
        """
        if request.scaffold_format != "yaml":
            raise ValueError(
                "This component is declared in YAML. In Python, use "
                "PublishedDatasource.from_attributes_dict(attributes={...})"
            )
        file = request.target_path / "defs.yaml"
        if file.exists():
            raise ValueError(f"{file} already exists: choose another name, or remove it")
        title = re.sub(r"[^A-Za-z0-9]+", " ", request.target_path.name).strip().title()
        name = asset_key_of(title)
        template = Template(_TEMPLATE.read_text("utf-8"))
        request.target_path.mkdir(parents=True, exist_ok=True)
        file.write_text(template.substitute(name=name, title=title), "utf-8")

"""The component TableauPipeline: all definitions of a project besides models and data sources."""

import os
from pathlib import Path
from string import Template
from typing import Annotated, Any, Self

import dagster as dg
from pydantic import BeforeValidator, Field, model_validator

from tableau_pipeline.components.audit import AuditTime
from tableau_pipeline.components.automation import triggers_of
from tableau_pipeline.components.command_publishes import publishes_sensor
from tableau_pipeline.components.lineage import Lineage, lineage_definitions
from tableau_pipeline.components.notifications import Notify, notification_sensor
from tableau_pipeline.components.publish_file import publish_file
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.quality_warnings import warning_definitions
from tableau_pipeline.components.yaml_component import YamlComponent
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline.yaml_keys import guess, keyed, mistake

TEMPLATES = Path(__file__).with_name("new_project")
_DEFAULT_NAMES = ("spark", "hyper", "tableau", "snapshots")
_ALL_NAMES = (*_DEFAULT_NAMES, "io_manager")
_KEEP_DAYS = 14


def _resource_names(value: Any) -> Any:
    if isinstance(value, bool):
        return _DEFAULT_NAMES if value else ()
    names = value if isinstance(value, list | tuple) else [value]
    for name in names:
        if name not in _ALL_NAMES:
            raise ValueError(
                f'there is no resource "{name}": {guess(name, _ALL_NAMES)}Write true, false, or a '
                f"list of {', '.join(_ALL_NAMES)}"
            )
    return tuple(names)


class TableauPipelineScaffolder(dg.Scaffolder):
    """Writes the declaration and, in a project that lacks them, `.env` and Dagster's settings."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write the missing files; make git ignore files with secrets or data.

        Raises:
            ValueError: the project declares the component already.
        """
        file = request.target_path / "defs.yaml"
        if file.exists():
            raise ValueError(f"{file} already exists: a project needs this component once")
        _write(file, (TEMPLATES / "pipeline.yaml").read_text("utf-8"))
        if root := request.project_root:
            home = root.absolute() / "dagster_home"
            env = Template((TEMPLATES / "env").read_text("utf-8"))
            _write(root / ".env", env.substitute(dagster_home=home))
            _write(home / "dagster.yaml", (TEMPLATES / "dagster.yaml").read_text("utf-8"))
            ignored = root / ".gitignore"
            lines = ignored.read_text("utf-8").splitlines() if ignored.exists() else []
            missing = [entry for entry in (".env", "dagster_home/", "data/") if entry not in lines]
            if missing:
                ignored.write_text("\n".join([*lines, *missing, ""]), "utf-8")


def _write(file: Path, text: str) -> None:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


@dg.scaffold_with(TableauPipelineScaffolder)
@keyed
class TableauPipeline(YamlComponent):
    """The resources, triggers and jobs that the data sources of a code location need."""

    resources: Annotated[
        tuple[str, ...], BeforeValidator(_resource_names, json_schema_input_type=bool | list[str])
    ] = Field(
        default=_DEFAULT_NAMES,
        json_schema_extra={"default": True},
        description="true: spark, hyper, tableau and snapshots, set up from the environment. A "
        "list: only the listed resources. If the list has io_manager, snapshots is the default IO "
        "manager.",
    )
    in_process: bool = Field(
        default=False,
        description="Run all steps of a run in one process, where Spark starts once. No effect with"
        " SPARK_REMOTE.",
    )
    keep_days: float = Field(
        default=_KEEP_DAYS,
        gt=0,
        description="Days until a replaced snapshot is removed. A snapshot stays longer if a "
        "refresh may still compare new data with it. Must exceed the duration of any run.",
    )
    audit: AuditTime | None = Field(
        default=None,
        description='Add the job `audit` on a schedule: {cron: "0 4 * * *"}. Default: no audit.',
    )
    notify: Notify | None = Field(
        default=None,
        description="Send messages when a data source needs a person. Default: none.",
    )
    lineage: Lineage | None = Field(
        default=None,
        description="Report each refresh to a catalogue, by OpenLineage. Default: none.",
    )

    @model_validator(mode="after")
    def _check_keep_days(self) -> Self:
        if self.keep_days != _KEEP_DAYS and "snapshots" not in self.resources:
            raise mistake(
                ("keep_days",),
                "this is a setting of the resource `snapshots`, which `resources` leaves out: set "
                "it where that resource is made",
            )
        return self

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the resources, triggers and jobs for the data sources of this code location."""
        datasources = context.component_tree.get_all_components(of_type=PublishedDatasource)
        in_process = self.in_process and not os.environ.get("SPARK_REMOTE")
        resources = resources_from_env(keep_days=self.keep_days)
        resources["io_manager"] = resources["snapshots"]
        notifications = [notification_sensor(self.notify, datasources)] if self.notify else []
        definitions = dg.Definitions(
            jobs=[publish_file],
            resources={name: resources[name] for name in self.resources},
            executor=dg.in_process_executor if in_process else None,
            sensors=[publishes_sensor(), *notifications],
        )
        audit = self.audit.definitions(datasources) if self.audit else dg.Definitions()
        lineage = lineage_definitions(self.lineage, datasources) if self.lineage else None
        return dg.Definitions.merge(
            definitions,
            triggers_of(datasources),
            audit,
            warning_definitions(datasources),
            lineage or dg.Definitions(),
        )

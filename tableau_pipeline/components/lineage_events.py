"""Convert refreshes to events of OpenLineage. This module needs the extra `lineage`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import dagster as dg
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    data_quality_assertions_dataset,
    data_quality_metrics_dataset,
    documentation_dataset,
    error_message_run,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    symlinks_dataset,
)

from tableau_pipeline import __version__

_PRODUCER = f"pkg:pypi/tableau_pipeline@{__version__}"
_TABLEAU = "tableau"


def _facet(kind: Any, *values: Any, **more: Any) -> Any:
    # All facets take the argument `producer`, which attrs derives from the attribute `_producer`.
    # The type checker does not know this argument, so `kind` has the type Any.
    return kind(*values, **more, producer=_PRODUCER)


@dataclass(frozen=True, slots=True)
class Dataset:
    """The identity of a dataset in OpenLineage."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRefresh:
    """A refresh that has ended.

    Attributes:
        key: the asset key of the data source in its environment, such as "flights@Staging".
        namespace: the namespace of the job in OpenLineage.
        run_id: the id of the Dagster run; "" if the refresh was no run.
        began, ended: the time stamps of the start and the end, in seconds.
        inputs: maps asset keys of models to the datasets that the refresh read.
        description: a description of the data source for users.
        luid: the LUID of the data source; None if it was never published.
        name: the name of the data source in its namespace; None if it is not known.
        decision: why the refresh was stopped, in a word; "" if it succeeded.
        checks: the results of the data source's checks.
        metadata: the metadata that the refresh recorded in Dagster; {} if it was stopped.
    """

    key: str
    namespace: str
    run_id: str
    began: float
    ended: float
    inputs: Mapping[str, Dataset]
    description: str
    luid: str | None = None
    name: str | None = None
    decision: str = ""
    checks: Sequence[dg.AssetCheckEvaluation] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def events(self) -> tuple[RunEvent, RunEvent]:
        """Return the events of the start and the end.

        Two calls return equal events, so an event that is sent again adds no run to a catalogue.
        """
        # The run's own id does not suffice, because a run may refresh several data sources, and
        # because not every refresh is a run.
        name = f"dagster:{self.run_id or self.ended}/{self.key}"
        run_id = str(uuid5(NAMESPACE_URL, name))
        outcome = RunState.FAIL if self.decision else RunState.COMPLETE
        started = self._event(RunState.START, self.began, Run(run_id, facets=self._engine()))
        ended = self._event(outcome, self.ended, Run(run_id, facets=self._engine() | self._error()))
        for output in ended.outputs or ():
            output.facets = {**_about_dataset(self), **_checks(self.checks)}
            output.outputFacets = _statistics(self.metadata)
        return started, ended

    def _event(self, state: RunState, time: float, run: Run) -> RunEvent:
        output = [OutputDataset(_TABLEAU, self.name)] if self.name else []
        inputs = {
            dataset: InputDataset(dataset.namespace, dataset.name)
            for dataset in self.inputs.values()
        }
        return RunEvent(
            eventType=state,
            eventTime=datetime.fromtimestamp(time, UTC).isoformat(),
            run=run,
            job=Job(self.namespace, self.key),
            inputs=[*inputs.values()],
            outputs=output,
            producer=_PRODUCER,
        )

    def _engine(self) -> dict[str, Any]:
        # DataHub reads the kind of a job from this facet, and rejects an event that lacks the
        # facet.
        kind = processing_engine_run.ProcessingEngineRunFacet
        versions = (dg.__version__, "dagster", __version__)
        return {"processing_engine": _facet(kind, *versions)}

    def _error(self) -> dict[str, Any]:
        if not self.decision:
            return {}
        # Leave out the reason, which may quote values of rows. A catalogue has more readers than
        # Dagster.
        message = f"The refresh was stopped ({self.decision}): see run {self.run_id} in Dagster"
        error = _facet(error_message_run.ErrorMessageRunFacet, message, "PYTHON")
        return {"errorMessage": error}


def _about_dataset(refresh: EndedRefresh) -> dict[str, Any]:
    kind = documentation_dataset.DocumentationDatasetFacet
    facets = {"documentation": _facet(kind, refresh.description)}
    if refresh.luid and refresh.luid != refresh.name:
        # Do not use the type TABLE, which DataHub interprets as a table of Hive.
        identifier = symlinks_dataset.Identifier(_TABLEAU, refresh.luid, "LUID")
        facets["symlinks"] = _facet(symlinks_dataset.SymlinksDatasetFacet, [identifier])
    columns = refresh.metadata.get("dagster/column_schema")
    if isinstance(columns, dg.TableSchema):
        fields = [
            schema_dataset.SchemaDatasetFacetFields(
                each.name, each.type, each.description, ordinal_position=number
            )
            for number, each in enumerate(columns.columns, 1)
        ]
        facets["schema"] = _facet(schema_dataset.SchemaDatasetFacet, fields)
    origins = refresh.metadata.get("dagster/column_lineage")
    if isinstance(origins, dg.TableColumnLineage):
        facets["columnLineage"] = _column_lineage(origins, refresh.inputs)
    rows = refresh.metadata.get("dagster/row_count")
    if rows is not None:
        kind = data_quality_metrics_dataset.DataQualityMetricsDatasetFacet
        facets["dataQualityMetrics"] = _facet(kind, {}, rows)
    return facets


def _column_lineage(origins: dg.TableColumnLineage, inputs: Mapping[str, Dataset]) -> Any:
    fields = {}
    for name, deps in origins.deps_by_column.items():
        found = [(inputs.get(dep.asset_key.to_user_string()), dep.column_name) for dep in deps]
        fields[name] = column_lineage_dataset.Fields(
            [
                column_lineage_dataset.InputField(dataset.namespace, dataset.name, column)
                for dataset, column in found
                if dataset
            ]
        )
    return _facet(column_lineage_dataset.ColumnLineageDatasetFacet, fields)


def _checks(results: Sequence[dg.AssetCheckEvaluation]) -> dict[str, Any]:
    """Return the check results as a facet, without descriptions, which may quote values of rows."""
    assertions = [
        data_quality_assertions_dataset.Assertion(
            assertion=each.check_name,
            success=each.passed,
            severity="error" if each.blocking else "warn",
        )
        for each in results
    ]
    facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet
    return {"dataQualityAssertions": _facet(facet, assertions)} if assertions else {}


def _statistics(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a facet with the rows and bytes that the refresh sent."""
    if "rows sent" not in metadata:
        return {}
    sent = (metadata["rows sent"], metadata["details"].get("bytes sent"))
    kind = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    return {"outputStatistics": _facet(kind, *sent)}

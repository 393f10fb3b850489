"""Dagster's event log as the journal of a refresh.

The state is metadata of the published asset's newest materialization; intents are observations
after it, which Dagster stores at once, so that they outlive a crash of the step.
"""

from collections.abc import Sequence
from typing import TypeVar

import dagster as dg
from pydantic import ValidationError

from tableau_pipeline.core.checkpoint import Intent, State

STATE = "tableau_pipeline/state"
INTENT = "tableau_pipeline/intent"
# One refresh records an intent four times; hundreds in a row without a success are past hope.
_OBSERVATIONS = 500
_MATERIALIZATIONS = 50


class DagsterJournal:
    """Implements `refresh.journal.Journal` for one published asset."""

    def __init__(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, asset_key: dg.AssetKey
    ) -> None:
        self._context = context
        self._asset_key = asset_key

    def state(self) -> State | None:
        """The state in the newest materialization; one reported by hand hides those before it."""
        materializations = self._materializations(limit=1)
        return state_in(materializations[0]) if materializations else None

    def why_no_state(self) -> str:
        """Why `state` is None."""
        for materialization in self._materializations(limit=1):
            if _metadata(materialization):
                return "the recorded state is that of another version of this pipeline"
            return "the newest materialization carries no state (was it reported by hand?)"
        return "Dagster has no record of an earlier refresh"

    def intents(self) -> Sequence[Intent]:
        """The newest record of each intent since the newest state."""
        since = next(
            (
                record.storage_id
                for record in self._materializations(limit=_MATERIALIZATIONS)
                if state_in(record)
            ),
            None,
        )
        observations = self._context.instance.fetch_observations(
            dg.AssetRecordsFilter(asset_key=self._asset_key, after_storage_id=since),
            limit=_OBSERVATIONS,
        ).records
        newest: dict[str, Intent] = {}
        for record in reversed(observations):
            value = record.asset_observation.metadata.get(INTENT)
            if isinstance(value, dg.JsonMetadataValue) and (intent := _read(Intent, value)):
                newest[intent.request_id] = intent
        return list(newest.values())

    def record(self, intent: Intent) -> None:
        """Store an observation of the published asset."""
        self._context.log_event(
            dg.AssetObservation(
                self._asset_key,
                description=f"{intent.action}: {intent.outcome or 'about to be sent'}",
                metadata={INTENT: dg.MetadataValue.json(intent.model_dump(mode="json"))},
            )
        )

    def _materializations(self, *, limit: int) -> Sequence[dg.EventLogRecord]:
        return self._context.instance.fetch_materializations(self._asset_key, limit=limit).records


def _metadata(record: dg.EventLogRecord) -> dg.JsonMetadataValue | None:
    materialization = record.asset_materialization
    value = materialization.metadata.get(STATE) if materialization else None
    return value if isinstance(value, dg.JsonMetadataValue) else None


def state_in(record: dg.EventLogRecord) -> State | None:
    """The state that a materialization carries; None if it carries none that we can read."""
    value = _metadata(record)
    return _read(State, value) if value else None


Record = TypeVar("Record", State, Intent)


def _read(kind: type[Record], value: dg.JsonMetadataValue) -> Record | None:
    """None for a record that another version of this pipeline wrote."""
    try:
        return kind.model_validate(value.data)
    except ValidationError:
        return None

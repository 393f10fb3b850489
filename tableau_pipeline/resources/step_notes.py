"""What the inputs and the function of a step leave for its output."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import dagster as dg
from dagster._core.execution.context.system import StepExecutionContext

from tableau_pipeline.core.snapshot import Origin, Snapshot


@dataclass(slots=True)
class StepNotes:
    """Notes of one attempt of a step.

    Attributes:
        loaded: the snapshots that the IO manager has loaded, by the asset keys of their models.
        origin: what the model computes its rows from, if it has said so.
        unchanged: the snapshot that is the output once more, if nothing came in.
    """

    loaded: dict[dg.AssetKey, Snapshot] = field(default_factory=dict)
    origin: Origin | None = None
    unchanged: Snapshot | None = None


_NOTES: MutableMapping[StepExecutionContext, StepNotes] = WeakKeyDictionary()


def notes_of(step: StepExecutionContext) -> StepNotes:
    """Return the notes of a step, which end with it."""
    return _NOTES.setdefault(step, StepNotes())


def step_of(context: dg.InputContext | dg.OutputContext) -> StepExecutionContext | None:
    """Return the step that loads or stores; None outside of runs."""
    try:
        return context.step_context
    except dg.DagsterInvariantViolationError:
        return None

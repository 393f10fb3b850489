"""The interface of a kind of job; the worker runs all kinds alike."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tableau_sandbox.services import Services
from tableau_sandbox.store.records import Job

Commit = Callable[[], str | None]


class JobFailedError(RuntimeError):
    """A job fails; the message becomes its note."""


@dataclass(frozen=True)
class JobKind:
    """One kind of job.

    Attributes:
        job_type: the name of the kind in the answer to a query of one job.
        prepare: does the work without effect, and returns a function that gives it effect. The
            function runs in the transaction in which the job succeeds, so that both happen or
            neither. It returns the stamp of its effect, before which the job is not completed, or
            None.
        clean_up: removes the files of the job; called once, whatever its end.
        detail: the element that names the data source of the job, once the parameters of the job
            contain `datasource`, its id and name. They may also contain the id of a `connection`.
        notes_first: whether the notes stand first in that element.
    """

    job_type: str
    prepare: Callable[[Services, Job], Commit]
    clean_up: Callable[[Services, Job], None]
    detail: str
    notes_first: bool = False


JobKinds = Mapping[str, JobKind]

"""What a kind of job has to offer; the worker runs all kinds alike."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store.records import Job

Commit = Callable[[], str | None]


class JobFailedError(RuntimeError):
    """A job cannot do what it was asked for; the message becomes its note."""


@dataclass(frozen=True)
class JobKind:
    """One kind of job.

    Attributes:
        job_type: what the answer to a query of one job calls it.
        prepare: does the work without effect; returns what gives it effect. The latter runs in the
            transaction in which the job succeeds, so that both happen or none of them, and returns
            the stamp of that moment, before which the job is not completed; None if it is all one.
        clean_up: removes what the job worked on; called once, whatever its end.
        detail: the element that tells on which data source the job works, as soon as the
            parameters of the job contain `datasource`, its id and name; they may contain the id of
            a `connection` too.
    """

    job_type: str
    prepare: Callable[[Services, Job], Commit]
    clean_up: Callable[[Services, Job], None]
    detail: str


JobKinds = Mapping[str, JobKind]

"""What Tableau's documents leave open, and pipelines notice: a sandbox can be told to do either."""

from dataclasses import dataclass, field
from enum import StrEnum


class RepeatedRequest(StrEnum):
    """What the second request with a RequestID is answered; it is never carried out."""

    FIRST_JOB = "first-job"
    EMPTY_JOB = "empty-job"
    CONFLICT = "conflict"


class UpdatedAt(StrEnum):
    """Whether the `updatedAt` of a data source moves when its data are updated."""

    MOVES = "moves"
    STAYS = "stays"
    MOVES_LATE = "moves-late"


class Stamps(StrEnum):
    """Whether two changes within one second share an `updatedAt`, or the later one gets a later."""

    DISTINCT = "distinct"
    SHARED = "shared"


class JobStamps(StrEnum):
    """Where the `updatedAt` that a job gives lies: while the job ran, or after its completion."""

    INSIDE = "inside"
    AFTER = "after"


class JobOrder(StrEnum):
    """Which of the queued jobs comes next."""

    FIFO = "fifo"
    ANY = "any"


class Replace(StrEnum):
    """What publish mode Replace does, apart from exchanging the data."""

    KEEPS_METADATA = "keeps-metadata"
    LIKE_OVERWRITE = "like-overwrite"
    REFUSED = "refused"


class BareDownload(StrEnum):
    """What comes of a download without the extract: the `.tds`, or a package around it."""

    TDS = "tds"
    TDSX = "tdsx"


@dataclass(frozen=True, kw_only=True)
class OpenQuestions:
    """One answer to each question; `help` is how the command puts it.

    Attributes:
        repeated_request: what a repeated RequestID is answered.
        updated_at: whether the `updatedAt` of a data source moves on a data update: in its job,
            never, or `late_seconds` after its job, when clients have seen the job completed.
        stamps: whether two changes of a data source within one second share an `updatedAt`.
        job_stamps: where the `updatedAt` that a publish as a job or a data update gives lies: in
            the time of the job, or `late_seconds` after it, though it is seen at once.
        late_seconds: how long after a job what is late comes.
        tags_move_stamp: adding and deleting tags moves the `updatedAt` of a data source.
        edits_move_stamp: changing its name, project, description, owner or certification does.
        revisions: the site keeps revisions; otherwise their list is refused.
        update_revisions: a data update makes a revision, as each publish does.
        job_order: which of the queued jobs comes next.
        early_finish_code: unfinished jobs have the finish code 0 too, but no completion.
        publish_jobs_name_target: a publish that has succeeded as a job names its data source.
        replace: what publish mode Replace does; the data source must exist in any case.
        bare_download: what comes of a download without the extract.
        zips_vary: the bytes of a package differ from download to download.
        tds_varies: each publish and each data update leaves a mark of its own in the `.tds`.
    """

    repeated_request: RepeatedRequest = field(
        default=RepeatedRequest.FIRST_JOB, metadata={"help": "a known RequestID gets"}
    )
    updated_at: UpdatedAt = field(
        default=UpdatedAt.MOVES, metadata={"help": "updatedAt on a data update"}
    )
    stamps: Stamps = field(
        default=Stamps.DISTINCT, metadata={"help": "updatedAt of two changes in one second"}
    )
    job_stamps: JobStamps = field(
        default=JobStamps.INSIDE,
        metadata={"help": "updatedAt against the time of the job that changed it"},
    )
    late_seconds: float = field(default=2, metadata={"help": "how late what comes late is"})
    tags_move_stamp: bool = field(default=False, metadata={"help": "tagging moves updatedAt"})
    edits_move_stamp: bool = field(
        default=True, metadata={"help": "renaming, moving, describing and the like move updatedAt"}
    )
    revisions: bool = field(default=True, metadata={"help": "the site keeps revisions"})
    update_revisions: bool = field(default=False, metadata={"help": "data updates make revisions"})
    job_order: JobOrder = field(
        default=JobOrder.FIFO, metadata={"help": "which queued job comes next"}
    )
    early_finish_code: bool = field(
        default=False, metadata={"help": "unfinished jobs have the finishCode 0"}
    )
    publish_jobs_name_target: bool = field(
        default=True, metadata={"help": "a finished publish names its data source"}
    )
    replace: Replace = field(
        default=Replace.KEEPS_METADATA, metadata={"help": "publish mode Replace"}
    )
    bare_download: BareDownload = field(
        default=BareDownload.TDS, metadata={"help": "a download without the extract"}
    )
    zips_vary: bool = field(default=False, metadata={"help": "no two packages have the same bytes"})
    tds_varies: bool = field(
        default=False, metadata={"help": "publishes and data updates leave marks in the .tds"}
    )

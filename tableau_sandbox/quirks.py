"""Behaviour that Tableau's documentation leaves open; each quirk of the sandbox chooses one."""

from dataclasses import dataclass, field, fields
from enum import StrEnum

from tableau_sandbox.vds.schema import Schema


class RepeatedRequest(StrEnum):
    """The answer to a repeated RequestID; the request is never carried out again."""

    FIRST_JOB = "first-job"
    EMPTY_JOB = "empty-job"
    CONFLICT = "conflict"


class UpdatesMoveStamp(StrEnum):
    """When the `updatedAt` of a data source moves after its data are updated."""

    AT_ONCE = "at-once"
    NEVER = "never"
    LATE = "late"


class StampsWithinSecond(StrEnum):
    """Whether two changes within one second share an `updatedAt`; if not, the second is later."""

    DISTINCT = "distinct"
    SHARED = "shared"


class JobStamps(StrEnum):
    """Where the `updatedAt` set by a job lies: in the time of the job, or after its completion."""

    INSIDE = "inside"
    AFTER = "after"


class PendingPublish(StrEnum):
    """The finish code of a publish job that has not ended."""

    NONE = "none"
    SUCCESS = "0"
    FAILURE = "1"


class JobOrder(StrEnum):
    """Which queued job runs next."""

    FIFO = "fifo"
    ANY = "any"


class Replace(StrEnum):
    """What publish mode Replace does besides replacing the data."""

    KEEPS_METADATA = "keeps-metadata"
    LIKE_OVERWRITE = "like-overwrite"
    REFUSED = "refused"


class DownloadWithoutExtract(StrEnum):
    """The result of a download without the extract: the `.tds`, or a package around it."""

    TDS = "tds"
    TDSX = "tdsx"


class EmptyAggregate(StrEnum):
    """What VizQL Data Service answers to an aggregate over no rows."""

    NO_ROW = "no-row"
    ZERO = "zero"
    ERROR = "error"


class QueryAccess(StrEnum):
    """Who may query by VizQL Data Service: those with the capability, everybody, or nobody."""

    CAPABILITY = "capability"
    EVERYBODY = "everybody"
    NOBODY = "nobody"


@dataclass(frozen=True, kw_only=True)
class Quirks:
    """The value of each quirk; `help` is its text in the command's help.

    Attributes:
        repeated_request: the answer to a repeated RequestID.
        updates_move_stamp: when the `updatedAt` of a data source moves after a data update: in its
            job, never, or `late_stamp_seconds` after its job, when clients have seen it completed.
        stamps_within_second: whether two changes within one second share an `updatedAt`.
        job_stamps: where the `updatedAt` set by a publish job or a data update lies: in the time of
            the job, or `late_stamp_seconds` after it, although it is visible at once.
        late_stamp_seconds: the delay of late stamps after a job.
        tags_move_stamp: whether adding and deleting tags moves the `updatedAt` of a data source.
        edits_move_stamp: whether a change of its name, project, description, owner or certification
            does.
        revisions: whether the site keeps revisions; otherwise listing them is refused.
        update_revisions: whether a data update makes a revision, as each publish does.
        job_order: which queued job runs next.
        early_finish_code: whether unfinished jobs also have finish code 0, without a completion
            time.
        pending_publish: the finish code of a publish job that has not ended, whatever
            `early_finish_code` says; Tableau's samples have 1 there, without a completion time.
        publish_jobs_name_target: whether a succeeded publish job names its data source.
        replace: what publish mode Replace does; the data source must exist in any case.
        download_without_extract: the result of a download without the extract.
        zips_vary: whether the bytes of a package differ from download to download.
        tds_varies: whether each publish and each data update leaves a different mark in the `.tds`.
        gateway_pages: whether refusals with the status 503 or 504 are HTML, as those of gateways.
        vds: whether the server has VizQL Data Service.
        vds_schema: the version of VizQL Data Service, which does not follow that of the product.
        vds_empty: what it answers to an aggregate over no rows.
        vds_access: who may query by it.
    """

    repeated_request: RepeatedRequest = field(
        default=RepeatedRequest.FIRST_JOB, metadata={"help": "answer to a known RequestID"}
    )
    updates_move_stamp: UpdatesMoveStamp = field(
        default=UpdatesMoveStamp.AT_ONCE, metadata={"help": "updatedAt on a data update"}
    )
    stamps_within_second: StampsWithinSecond = field(
        default=StampsWithinSecond.DISTINCT,
        metadata={"help": "updatedAt of two changes in one second"},
    )
    job_stamps: JobStamps = field(
        default=JobStamps.INSIDE,
        metadata={"help": "updatedAt relative to the time of the job that changed it"},
    )
    late_stamp_seconds: float = field(
        default=2, metadata={"help": "seconds by which late stamps follow their job"}
    )
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
    pending_publish: PendingPublish = field(
        default=PendingPublish.NONE, metadata={"help": "finishCode of an unfinished publish"}
    )
    publish_jobs_name_target: bool = field(
        default=True, metadata={"help": "a finished publish names its data source"}
    )
    replace: Replace = field(
        default=Replace.KEEPS_METADATA, metadata={"help": "publish mode Replace"}
    )
    download_without_extract: DownloadWithoutExtract = field(
        default=DownloadWithoutExtract.TDS, metadata={"help": "a download without the extract"}
    )
    zips_vary: bool = field(
        default=False, metadata={"help": "the bytes of packages differ each time"}
    )
    tds_varies: bool = field(
        default=False, metadata={"help": "publishes and data updates leave marks in the .tds"}
    )
    gateway_pages: bool = field(
        default=False, metadata={"help": "answers with the status 503 or 504 are HTML"}
    )

    vds: bool = field(default=True, metadata={"help": "the server has VizQL Data Service"})
    vds_schema: Schema = field(
        default=Schema.V20262, metadata={"help": "version of VizQL Data Service"}
    )
    vds_empty: EmptyAggregate = field(
        default=EmptyAggregate.NO_ROW,
        metadata={"help": "VizQL Data Service's answer to an aggregate over no rows"},
    )
    vds_access: QueryAccess = field(
        default=QueryAccess.CAPABILITY,
        metadata={"help": "who may query by VizQL Data Service"},
    )

    def __post_init__(self) -> None:
        """Take values by their text as well: "refused" for `Replace.REFUSED`.

        Raises:
            ValueError: a quirk has no such value.
        """
        for quirk in fields(Quirks):
            if isinstance(quirk.default, StrEnum):
                value = type(quirk.default)(getattr(self, quirk.name))
                # The way to set an attribute of a frozen object while it is being made.
                object.__setattr__(self, quirk.name, value)

    def finish_code_of_unfinished(self, *, is_publish: bool) -> int | None:
        """Return the finish code of a job that has not ended; None if it has none."""
        if is_publish and self.pending_publish is not PendingPublish.NONE:
            return int(self.pending_publish)
        return 0 if self.early_finish_code else None

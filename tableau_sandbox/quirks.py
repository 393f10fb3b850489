"""Behaviour that Tableau's documentation leaves open; each quirk of the sandbox chooses one."""

from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

# Values may be secrets, and must not appear in messages.
STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def option(default: Any, text: str, **argument: Any) -> Any:
    """Declare an attribute, with its help, that the command takes as an option.

    `argument` may have `flag`, if the option has another name; `metavar`; and `parse`, which reads
    the value from text.
    """
    return field(default=default, metadata={"help": text, **argument})


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Quirks:
    """The value of each quirk; its help explains the quirk."""

    repeated_request: Literal["first-job", "empty-job", "conflict"] = option(
        "first-job", "the answer to a known RequestID, which is never carried out again"
    )
    second_update: Literal["refused", "queued"] = option(
        "refused", "a data update while another one of the data source is queued or in progress"
    )
    updates_by: Literal["owner", "writers"] = option(
        "owner", "who may update data: the owner with the capability to write, or all who may write"
    )
    updates_move_stamp: Literal["at-once", "never", "late"] = option(
        "at-once", "when a data update moves updatedAt; late is after clients saw the job completed"
    )
    stamps_within_second: Literal["distinct", "shared"] = option(
        "distinct", "updatedAt of two changes in one second; if distinct, the second is later"
    )
    job_stamps: Literal["inside", "after"] = option(
        "inside", "the updatedAt that a job sets: in the job's time or, though seen then, later"
    )
    late_stamp_seconds: Seconds = option(2, "seconds by which late stamps follow their job")
    tags_move_stamp: bool = option(False, "adding and deleting tags moves updatedAt")
    edits_move_stamp: bool = option(True, "renaming, moving, describing and the like move it")
    revisions: bool = option(True, "the site keeps revisions; otherwise, listing them is refused")
    update_revisions: bool = option(False, "data updates make revisions, as publishes do")
    job_access: Literal["administrators", "own-jobs", "session-lost"] = option(
        "administrators",
        "who may ask for a job: administrators, or also the user who queued it; session-lost "
        "answers all others that their session has ended",
    )
    job_titles: bool = option(True, "listed jobs have titles")
    job_words: Literal["known", "unknown"] = option(
        "known", "the words for publishes and data updates in the list of jobs"
    )
    finished_jobs: Literal["kept", "gone"] = option("kept", "what becomes of a job after its end")
    failed_jobs: Literal["finish-code", "error-note"] = option(
        "finish-code", "what shows that a job failed; a note of an error comes with finishCode 0"
    )
    index_lag_seconds: Seconds = option(0, "seconds until lists show what was created")
    job_order: Literal["fifo", "any"] = option("fifo", "which queued job comes next")
    early_finish_code: bool = option(False, "unfinished jobs have the finishCode 0")
    pending_publish: Literal["none", "0", "1"] = option(
        "none", "finishCode of an unfinished publish, whatever --early-finish-code says"
    )
    replace: Literal["keeps-metadata", "like-overwrite", "refused", "fails", "unknown"] = option(
        "keeps-metadata",
        "what publish mode Replace does besides replacing the data; unknown: it is ignored, as it "
        "always is before version 3.25 of the REST API",
    )
    taken_name: Literal["in-job", "at-request"] = option(
        "in-job", "where a publish as a job fails if its name is taken; a job gives no reason"
    )
    several_tables: Literal["by-keys", "refused"] = option(
        "by-keys",
        "a .hyper file of several tables without a model: taken if assumed foreign keys relate "
        "them, or never, by a job without a reason",
    )
    table_ids: Literal["desktop", "plain"] = option(
        "desktop",
        "ids of the tables of a .hyper file: T (SCHEMA.T) and 32 digits, or T and the digits",
    )
    packages: bool = option(True, "packaged data sources can be published")
    publisher_owns: bool = option(False, "who publishes over a data source owns it from then on")
    download_without_extract: Literal["tdsx", "tdsx-with-data"] = option(
        "tdsx",
        "the package of a download without the extract: with the data of a .hyper file or not",
    )
    gateway_pages: bool = option(False, "answers with the status 503 or 504 are HTML")
    missing_warnings: Literal["404030", "empty"] = option(
        "404030", "the answer where a data source has no data quality warning"
    )
    data_management: bool = option(
        True, "the site is licensed for data quality warnings; otherwise, they are refused"
    )
    vds: bool = option(True, "the server has VizQL Data Service")
    vds_schema: Literal["20262", "20261", "20253", "20252", "20251"] = option(
        "20262", "version of VizQL Data Service; later ones know more options"
    )
    vds_empty: Literal["no-row", "zero", "error"] = option(
        "no-row", "what VizQL Data Service answers to an aggregate over no rows"
    )
    vds_access: Literal["capability", "everybody", "nobody"] = option(
        "capability", "who may query by VizQL Data Service"
    )
    block_numbers: Literal["kept", "ignored"] = option(
        "kept", "sequenceID of a block; if ignored, blocks are stored as they come"
    )

    def finish_code_of_unfinished(self, *, is_publish: bool) -> int | None:
        """Return the finish code of a job that has not ended; None if it has none."""
        if is_publish and self.pending_publish != "none":
            return int(self.pending_publish)
        return 0 if self.early_finish_code else None

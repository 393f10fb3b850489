"""The quirks: each chooses a behaviour that Tableau's documentation leaves open."""

from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

# Values may be secrets, so error messages must not show them.
STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def option(default: Any, text: str, **argument: Any) -> Any:
    """Declare an attribute that the command takes as an option with this help text.

    `argument` may contain `flag`, the name of the option if it differs from the attribute's name;
    `metavar`; and `parse`, which reads the value from text.
    """
    return field(default=default, metadata={"help": text, **argument})


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Quirks:
    """The value of each quirk; the help text explains the quirk."""

    repeated_request: Literal["first-job", "empty-job", "conflict"] = option(
        "first-job", "the answer to a known RequestID, whose update never runs twice"
    )
    second_update: Literal["refused", "queued"] = option(
        "refused", "a data update while another update of the data source is unfinished"
    )
    updates_by: Literal["owner", "writers"] = option(
        "owner", "who may update data: the owner or all, if they have the capability to write"
    )
    updates_move_stamp: Literal["at-once", "never", "late"] = option(
        "at-once", "when a data update moves updatedAt; late: after clients saw the job end"
    )
    stamps_within_second: Literal["distinct", "shared"] = option(
        "distinct", "updatedAt of two changes in one second; distinct: the second gets a later time"
    )
    job_stamps: Literal["inside", "after"] = option(
        "inside", "the updatedAt that a job sets: within the job's duration or after it"
    )
    late_stamp_seconds: Seconds = option(2, "seconds from a job to its late stamps")
    tags_move_stamp: bool = option(False, "adding and deleting tags moves updatedAt")
    edits_move_stamp: bool = option(True, "renaming, moving and similar edits move updatedAt")
    revisions: bool = option(True, "the site keeps revisions; otherwise, listing them is refused")
    update_revisions: bool = option(False, "a data update makes a revision, as a publish does")
    job_access: Literal["administrators", "own-jobs", "session-lost"] = option(
        "administrators",
        "who may query a job: administrators, or also the user who queued it; session-lost: "
        "only administrators; all others get the answer that their session has ended",
    )
    job_titles: bool = option(True, "listed jobs have titles")
    job_words: Literal["known", "unknown"] = option(
        "known", "the words for publishes and data updates in the list of jobs"
    )
    finished_jobs: Literal["kept", "gone"] = option("kept", "what becomes of a job after its end")
    failed_jobs: Literal["finish-code", "error-note"] = option(
        "finish-code", "what shows that a job failed; with error-note, finishCode is 0"
    )
    index_lag_seconds: Seconds = option(0, "seconds until lists show a new object")
    job_order: Literal["fifo", "any"] = option("fifo", "which queued job runs next")
    early_finish_code: bool = option(False, "unfinished jobs have the finishCode 0")
    pending_publish: Literal["none", "0", "1"] = option(
        "none", "finishCode of an unfinished publish; 0 or 1 override --early-finish-code"
    )
    replace: Literal["keeps-metadata", "like-overwrite", "refused", "fails", "unknown"] = option(
        "keeps-metadata",
        "what publish mode Replace does besides replacing the data; unknown: the mode is ignored, "
        "as it always is before version 3.25 of the REST API",
    )
    taken_name: Literal["in-job", "at-request"] = option(
        "in-job", "where a publish as a job fails if its name is taken; a job gives no reason"
    )
    several_tables: Literal["by-keys", "refused"] = option(
        "by-keys",
        "a .hyper file with several tables: accepted if assumed foreign keys relate them, or "
        "always refused (a job fails without a reason)",
    )
    table_ids: Literal["desktop", "plain"] = option(
        "desktop",
        "ids of the tables of a .hyper file: T (SCHEMA.T) and 32 digits, or T and the digits",
    )
    packages: bool = option(True, "packaged data sources can be published")
    publisher_owns: bool = option(False, "a user who overwrites a data source becomes its owner")
    download_without_extract: Literal["tdsx", "tdsx-with-data"] = option(
        "tdsx",
        "the package of a download without the extract: without or with the .hyper file",
    )
    gateway_pages: bool = option(False, "answers with the status 503 or 504 are HTML")
    missing_warnings: Literal["404030", "empty"] = option(
        "404030", "the answer if a data source has no data quality warning"
    )
    data_management: bool = option(
        True, "the site is licensed for data quality warnings; otherwise, they are refused"
    )
    vds: bool = option(True, "the server has VizQL Data Service")
    vds_schema: Literal["20262", "20261", "20253", "20252", "20251"] = option(
        "20262", "version of VizQL Data Service; later versions know more options"
    )
    vds_empty: Literal["no-row", "zero", "error"] = option(
        "no-row", "the answer of VizQL Data Service to an aggregate over no rows"
    )
    vds_access: Literal["capability", "everybody", "nobody"] = option(
        "capability", "who may query by VizQL Data Service"
    )
    block_numbers: Literal["kept", "ignored"] = option(
        "kept", "sequenceID of a block; ignored: blocks are stored in the order of their arrival"
    )

    def finish_code_of_unfinished(self, *, is_publish: bool) -> int | None:
        """Return the finish code of a job that has not ended; None for no finish code."""
        if is_publish and self.pending_publish != "none":
            return int(self.pending_publish)
        return 0 if self.early_finish_code else None

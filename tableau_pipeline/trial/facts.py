"""List the questions of a trial, the assumed answers, and the effects of different answers.

The contract tests in `tableau_sandbox_tests` use the same name for the same question.
"""

from dataclasses import dataclass
from enum import StrEnum

from tableau_pipeline.core.snapshot import Frozen


@dataclass(frozen=True, slots=True)
class Fact:
    """A question that a trial answers.

    Attributes:
        assumed: the answer that the pipeline assumes; `tableau_sandbox`, our imitation of Tableau,
            behaves in this way.
        if_different: what refreshes do on a site with a different answer.
    """

    name: str
    assumed: str
    if_different: str


class Verdict(StrEnum):
    """Whether an answer is as assumed."""

    AS_ASSUMED = "as assumed"
    DIFFERENT = "different"
    UNKNOWN = "not known"


class Answer(Frozen):
    """The answer of a trial to a question."""

    fact: str
    verdict: Verdict
    detail: str = ""


_HIDDEN = "Refreshes use time stamp, revision and contents to find out what a job did."
_LISTS = "After a lost answer, a refresh waits until no job of that time can run any more."
_LEARNT = "Refreshes take this into account from now on."
_OPEN = "After a lost answer, the request stays open until its job is found or cannot run any more."
_FULL = "Each change is published in full."

_ALL = (
    Fact("own-job-of-a-creator", "Only administrators may ask for a job.", _HIDDEN),
    Fact("finished-job-is-kept", "A job can be asked for after its end.", _HIDDEN),
    Fact("list-of-jobs", "Only administrators may list jobs.", _LISTS),
    Fact(
        "titles-in-the-list",
        "The title of a listed job is the name of its data source.",
        "An unfinished job without a title may be ours: nothing is sent until it ends.",
    ),
    Fact(
        "kind-of-a-publish-in-the-list",
        "The type of a listed publish is publish_datasource.",
        _LEARNT,
    ),
    Fact(
        "kind-of-an-update-in-the-list",
        "The type of a listed update is update_uploaded_file.",
        _LEARNT,
    ),
    Fact(
        "listed-at-once",
        "Lists show a data source as soon as its publish has ended.",
        "A refresh asks again for up to a minute.",
    ),
    Fact(
        "stamp-of-a-job",
        "The updatedAt that a job sets lies between the job's start and end.",
        f"If a time stamp is late, refreshes compare contents. {_LEARNT}",
    ),
    Fact(
        "revision-of-each-publish",
        "Each publish makes a revision.",
        "Refreshes rely on time stamp and contents.",
    ),
    Fact(
        "tags-leave-the-stamp",
        "Adding a tag does not move updatedAt.",
        "None: a refresh reads the stamp again after it has set its tags.",
    ),
    Fact(
        "description-moves-the-stamp",
        "Setting a description moves updatedAt.",
        "None: a refresh reads the stamp again.",
    ),
    Fact(
        "description-is-kept",
        "A description is kept as it was sent, with its line ends.",
        "Refreshes report the description as one that the server changed.",
    ),
    Fact("permissions", "The owner may read the permissions.", "`permissions` cannot be declared."),
    Fact(
        "warnings-of-an-asset-without-one",
        "A request for the warnings of a data source without warnings is refused with 404030.",
        "None: an empty list means the same.",
    ),
    Fact(
        "download-without-the-extract",
        "A download without the extract is a .tdsx.",
        "None: refreshes also read a .tds.",
    ),
    Fact(
        "data-without-the-extract",
        "The package in a download without the extract has no data.",
        "Refreshes download the data, too, and ignore it. This takes as long as a full download.",
    ),
    Fact(
        "identifiers-by-desktop",
        "The id of a table is TABLE (SCHEMA.TABLE) and 32 digits.",
        "None: refreshes recognize tables by ids of any form, and by captions.",
    ),
    Fact(
        "count-of-rows",
        "VizQL Data Service counts the published rows.",
        "`reconcile: {by: auto}` downloads the data source after each change.",
    ),
    Fact("update-by-the-owner", "The owner of a data source may update its data.", _FULL),
    Fact(
        "update-moves-the-stamp",
        "A data update moves updatedAt at once.",
        f"Refreshes rely on revision, counts and contents. {_LEARNT}",
    ),
    Fact(
        "update-makes-no-revision",
        "A data update makes no revision.",
        f"A new revision after an update counts as the update's own. {_LEARNT}",
    ),
    Fact(
        "repeated-request-while-its-job-waits",
        "While the job of a request is queued, a repeated RequestID is answered with this job.",
        _OPEN,
    ),
    Fact(
        "second-update",
        "While an update waits or runs, another one is refused with 409094.",
        "None: a refresh sends one update at a time.",
    ),
    Fact(
        "repeated-request-is-answered-alike",
        "A repeated RequestID is answered with the job of the first request.",
        _OPEN,
    ),
    Fact(
        "repeated-request-changes-nothing",
        "A request with a repeated RequestID is not carried out again.",
        "None: a batch deletes the rows that it inserts, so that it may arrive twice.",
    ),
    Fact(
        "failed-update",
        "The job of a failed update has the finishCode 1.",
        "None: a job whose notes report an error counts as failed, too.",
    ),
    Fact(
        "published-package",
        "A package that was downloaded can be published again, with its rows.",
        "Declared metadata cannot be published: do not declare any.",
    ),
    Fact(
        "overwrite-keeps-the-luid",
        "Overwriting keeps the LUID.",
        "Each publish ends with an error that says that the data source was removed.",
    ),
    Fact("overwrite-keeps-tags", "Overwriting keeps the tags.", "None: tags are set again."),
    Fact(
        "replace-keeps-the-model",
        "Publish mode Replace keeps fields and captions that people made.",
        f"Data sources are published with the metadata that the server holds. {_LEARNT}",
    ),
    Fact(
        "taken-name-as-a-job",
        "A publish under a taken name is accepted, and its job fails.",
        "None: a refresh looks up the name before a publish, and after a failure.",
    ),
    Fact(
        "two-related-tables",
        "A .hyper file of two related tables is accepted without a .tds.",
        f"Several tables are published as a package with a .tds. {_LEARNT}",
    ),
    Fact(
        "blocks-out-of-order",
        "Blocks of an upload may arrive in any order, by their sequenceID.",
        f"Blocks are sent one after the other, not four at once. {_LEARNT}",
    ),
    Fact(
        "deleted-at-once",
        "A deleted data source is gone from lists at once.",
        "A refresh may still find a deleted data source, and then ends with an error once.",
    ),
    Fact(
        "refresh-by-update",
        "A refresh sends only changed rows.",
        _FULL,
    ),
    Fact(
        "refresh-keeps-work",
        "A refresh in full keeps fields and captions that people made.",
        "Do not let people edit these data sources: fields would be lost.",
    ),
    Fact(
        "refresh-of-two-tables",
        "A refresh publishes two related tables.",
        "Declare one table for each data source.",
    ),
    Fact(
        "refresh-after-a-lost-answer",
        "After a lost answer, the next refresh finds out what became of the request.",
        "Without an administrator, refreshes wait until the request cannot take effect any more.",
    ),
)
FACTS = {fact.name: fact for fact in _ALL}

"""The command `unlock`: end the claim of a refresh that no longer runs.

A claim is a lock: it makes other refreshes of the same data source wait.
"""

from datetime import UTC, datetime

import click
from rich.text import Text

from tableau_pipeline.command_line.output import Output, ago, reports
from tableau_pipeline.command_line.project import open_project
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.components.published_files import published_files
from tableau_pipeline.core.journal import Claim, ClaimRelease, History
from tableau_pipeline.refresh.claim import name_of
from tableau_pipeline.scripting.environment import current_user


@click.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@reports
def unlock(module: str | None, name: str, *, yes: bool, output: Output) -> int:
    """End the claim of a refresh that no longer runs, so that the next refresh does not wait.

    A refresh that still runs notices the end of its claim before its next request, and stops. The
    next refresh first finds out the results of the requests that were sent.

    Exit code: 0 no refresh holds the data source.
    """
    with open_project(module) as project:
        files = published_files(project.instance)
        key = name if name in files else next(iter(project.named([name])))
        journal = journal_of(project.instance, key)
        history = journal.history()
        claim = history.claim
        if claim is None:
            output.result({"key": key, "unlocked": None}, Text("No refresh holds it."))
            return 0
        runs = "has ended" if journal.has_ended(claim) else "may still run"
        since = ago(claim.claimed_at, datetime.now(UTC))
        output.progress(f"{name_of(claim)}, which began {since}, holds {key}. It {runs}")
        if not yes:
            click.confirm("End its claim?", abort=True, err=True)

        def release(newest: History, held: Claim = claim) -> ClaimRelease | None:
            if newest.claim is None or newest.claim.id != held.id:
                return None
            return ClaimRelease(
                refresh=held.refresh,
                claim=held.id,
                run_id=held.owner.run_id,
                unlocked_by=current_user(),
            )

        journal.append(release, after=history)
    output.result(
        {"key": key, "unlocked": claim.owner.run_id},
        Text(f"The claim of {name_of(claim)} has ended."),
    )
    return 0

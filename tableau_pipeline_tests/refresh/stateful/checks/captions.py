"""What the data source shows people: captions that are declared, or that a person set."""

from typing import Any

from tableau_pipeline.refresh.plan import Accept
from tableau_pipeline.refresh.report import Report
from tableau_pipeline_tests.refresh.stateful.actors import Actor
from tableau_pipeline_tests.refresh.stateful.checks.promise import require
from tableau_pipeline_tests.refresh.stateful.server.contents import captions


def check_captions(history: Any, actor: Actor, report: Report) -> None:
    """What nobody else has set is as it is declared; and what is not so, is told."""
    lost = [name for name in actor.replaced if name not in str(report.warnings)]
    require(not lost, f"the captions {lost} are replaced, and nobody is told")
    is_known = actor.wiped == actor.log.wiped == 0 and Accept.TAKEOVER not in actor.options.accept
    found = history.found()
    if found is None or actor.meddled or not is_known:
        return
    shown = captions(found)
    for table in actor.declaration.tables:
        declared = {each.name: each.caption for each in table.fields}
        for column in ("k", "cursor"):
            place = (actor.declaration.published_name(table.name), column)
            is_, wanted = shown.get(place, ""), declared.get(column, "")
            if is_ == wanted:
                history.ledger.touched.discard((found.luid, *place))
            elif (found.luid, *place) not in history.ledger.touched:
                require(False, f"{place} is declared as {wanted!r}, and shown as {is_!r}")

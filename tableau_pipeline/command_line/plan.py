"""The command `plan`: show what the next refreshes would do, and why."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from tableau_pipeline.command_line.output import Output, accept_option, reports, signed
from tableau_pipeline.command_line.project import CodeLocation, open_project
from tableau_pipeline.command_line.saving import Saving
from tableau_pipeline.components.git_revision import PreviewOf, previews_of_changes, revision
from tableau_pipeline.components.journal import journal_place
from tableau_pipeline.components.loading import misspelled_models
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.outcome import Accept, Code, Status
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.preview import Note, Preview, preview
from tableau_pipeline.rendering import Face, markdown_text, megabytes, rendered

# The closing line counts the previews of these kinds, in this order. It shows the kinds in
# `_ALWAYS_COUNTED` even if their count is 0.
_COUNTED = (
    *(Status.UPDATE, Status.PUBLISH, Status.MOVE, Status.METADATA, Status.REMOVED),
    *(Status.REFUSED, Status.FAILED, Status.UNKNOWN, Status.UNCHANGED),
)
_ALWAYS_COUNTED = (Status.UPDATE, Status.PUBLISH, Status.REFUSED, Status.UNCHANGED)
_SIGNS = {
    Status.REFUSED: "!",
    Status.FAILED: "x",
    Status.UNCHANGED: "=",
    Status.UNKNOWN: "?",
    Status.REMOVED: "-",
}
# For these kinds, the headline shows the kind, because the decision would only repeat it.
_UNDECIDED = (Status.REFUSED, Status.FAILED, Status.UNKNOWN)
_OFFLINE = "Offline: what others changed on the server since the last refresh is not known."
_NO_HOME = "DAGSTER_HOME is not set: which rows a check has rejected is not known."
_NO_RECORDS = (
    "DAGSTER_HOME is not set, and the data folder has no records: this is the plan of a deployment "
    "that has published nothing."
)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--offline",
    is_flag=True,
    help="Use the records of the last refresh and the snapshots here; ask no server.",
)
@click.option(
    "--base", metavar="REV", help="Only data sources that git revision REV declares differently."
)
@accept_option("Plan as if this were accepted.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Save the plan, for `refresh --plan`; with --base an approval, for `refresh --approval`.",
)
@click.option(
    "--max-change",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="With --base: the share of a table's rows that an approved refresh may change.",
)
@click.option(
    "--max-shrink",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="With --base: the share of its rows that a table may lose in an approved refresh.",
)
@click.option("--samples", is_flag=True, help="Show some values of rows in refusals.")
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text")
@reports
def plan(
    module: str | None,
    names: Sequence[str],
    *,
    offline: bool,
    base: str | None,
    out: Path | None,
    form: str,
    output: Output,
    **given: Any,
) -> int:
    """Show what the next refreshes would do, and why. Change nothing.

    Exit code: 0 no refresh would change anything, 2 a refresh would change something, 1 a refresh
    would be refused or fail, or the file of --out lacks a refresh.
    """
    if base is not None and not base.strip():
        raise click.UsageError("--base is empty: name a revision of git, or leave it out")
    accept = tuple(map(Accept, given["accept"]))
    saving = Saving(out, base is not None, given["max_change"], given["max_shrink"], accept=accept)
    saving.check(offline=offline)
    left_out: Sequence[str] = ()
    with open_project(module, without_runs=offline) as project:
        declared = project.named(names)
        former = revision(base, project.definitions) if base else None
        asked = Options(accept=frozenset(accept))
        with _previewing(project, output, asked, offline=offline, **given) as look:
            if former:
                previews = list(previews_of_changes(former, declared, look, every=not names))
                left_out = former.left_out(declared)
            else:
                previews = [look(datasource) for datasource in declared.values()]
    is_unchanged = former and not previews and not former.unread
    notes = [f"Nothing is declared differently from {base}."] if is_unchanged else []
    notes += [f"Not compared: {key}" for key in left_out] + [_OFFLINE] * offline
    if not os.environ.get("DAGSTER_HOME"):
        notes.append(_NO_HOME if journal_place().recorded() else _NO_RECORDS)
    saved, is_saved = saving.save(previews, declared)
    report = _Report(previews, notes, left_out, is_compared=bool(former))
    text = Text(report.markdown) if form == "markdown" else report.text
    output.result(report.data, text, *saved)
    if not is_saved or report.counts[Status.REFUSED] or report.counts[Status.FAILED]:
        return 1
    # The exit codes are the exit codes of `terraform plan -detailed-exitcode`. With --base, each
    # changed declaration counts as a change. A file that could not be read also counts, because it
    # may contain a changed declaration.
    if former:
        return 2 if previews or former.unread else 0
    return 2 if len(previews) > report.counts[Status.UNCHANGED] else 0


@dataclass(frozen=True)
class _Report:
    """The report that the command shows.

    Attributes:
        notes: sentences about the whole plan.
        left_out: the declarations that could not be compared.
        is_compared: whether the plan has only changed declarations (`--base`).
    """

    previews: Sequence[Preview]
    notes: Sequence[str]
    left_out: Sequence[str]
    is_compared: bool

    @cached_property
    def counts(self) -> Mapping[Status, int]:
        return {kind: sum(preview.kind == kind for preview in self.previews) for kind in _COUNTED}

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """The known bytes of all refreshes, and the number of refreshes of unknown size."""
        unknown = sum(
            preview.size is None and preview.kind in (Status.UPDATE, Status.PUBLISH)
            for preview in self.previews
        )
        return sum(preview.size or 0 for preview in self.previews), unknown

    @property
    def _closing(self) -> str:
        closing = _closing_line(self.counts, *self._sizes)
        return f"{len(self.previews)} declared differently. {closing}" * self.is_compared or closing

    @property
    def data(self) -> Mapping[str, Any]:
        """The plan as JSON, without the field `saved`, which only the file of `--out` contains."""
        size, unknown = self._sizes
        shown = [field.name for field in fields(Preview) if field.name != "saved"]
        datasources = [
            {name: getattr(preview, name) for name in shown} for preview in self.previews
        ]
        totals = {"counts": self.counts, "size": size, "sizes_not_known": unknown}
        return {"datasources": datasources, **totals, "left_out": self.left_out}

    @property
    def text(self) -> Text:
        return Text("\n").join(
            [*map(_tree, self.previews), *map(Text, [*self.notes, self._closing])]
        )

    @property
    def markdown(self) -> str:
        return _markdown(self.previews, self.notes, self._closing)


@contextmanager
def _previewing(
    project: CodeLocation,
    output: Output,
    asked: Options,
    *,
    offline: bool,
    samples: bool,
    **_: object,
) -> Generator[PreviewOf]:
    """Yield a function that previews the refresh of a data source. All previews share a session."""
    needs_counts = any(declared.needs_counts for declared in project.datasources.values())
    with project.resources() as resources, ExitStack() as stack:
        site = None
        if not offline and project.datasources:
            site = stack.enter_context(
                resources.tableau.session(output.waits(), counts=needs_counts)
            )

        def look(datasource: PublishedDatasource) -> Preview:
            if site:
                output.progress(datasource.name)
            setup = replace(
                project.setup(datasource, resources),
                server=lambda: nullcontext(site),
                samples=samples,
            )
            try:
                previewed = preview(setup, site, asked)
                lacks_snapshot = any(
                    refusal.code is Code.NO_SNAPSHOT for refusal in previewed.refusals
                )
                models = (
                    misspelled_models(project.definitions, datasource) if lacks_snapshot else ()
                )
                guesses = (Note("model", text) for text in models)
                # Show the declared key. The preview's key also has the project root of the
                # environment, as in "flights@Staging".
                saved = previewed.saved
                return replace(
                    previewed,
                    key=datasource.key,
                    notes=(*previewed.notes, *guesses),
                    saved=saved and saved.model_copy(update={"key": datasource.key}),
                )
            finally:
                resources.snapshots.copies.release()

        yield look


def _reasons(each: Preview) -> list[str]:
    # Show no reason for "no change", because this reason is always the same.
    shown = "" if each.kind is Status.UNCHANGED else each.reason
    return [f"because: {text}" for text in shown.split("\n") if text]


def _remarks(each: Preview) -> list[str]:
    """Return a line for each note, and, if a fix is known, a line for the fix."""
    fix = rendered(each.refusals, Face.COMMAND_LINE, key=each.key)
    return [
        *(f"{note.topic}: {note.text}" for note in each.notes),
        *([f"fix: {fix}"] if fix else ()),
    ]


def _tree(each: Preview) -> Text:
    """Return the headline, with a branch for each reason and remark."""
    tree = signed(_sign(each), f"{each.name}  {_headline(each)}")
    branches = _reasons(each) + _remarks(each)
    for number, branch in enumerate(branches, 1):
        tree.append(f"\n{'└' if number == len(branches) else '├'}── {branch}")
    return tree


def _markdown(found: Sequence[Preview], said: Sequence[str], closing: str) -> str:
    """Return the plan as Markdown, for a comment on a pull request."""
    lines = []
    for planned in found:
        lines.append(
            f"- `{_sign(planned)}` **{markdown_text(planned.name)}**: {_headline(planned)}"
        )
        refused = rendered(planned.refusals, Face.MARKDOWN, key=planned.key)
        reasons = "\n".join(f"- {markdown_text(text)}" for text in _reasons(planned))
        remarks = [f"- {markdown_text(text)}" for text in _remarks(planned)]
        lines += [f"  {line}" for line in (*(refused or reasons).splitlines(), *remarks)]
    return "\n".join([*lines, "", *(f"{markdown_text(note)}\n" for note in said), f"**{closing}**"])


def _sign(each: Preview) -> str:
    return "+" if each.is_new else _SIGNS.get(each.kind, "~")


def _headline(each: Preview) -> str:
    """Return, for example, "update  +28,135 -0 of 308,641 rows  2.40 MB of 95.00 MB"."""
    parts = [each.decision if each.kind not in _UNDECIDED else each.kind]
    if each.kind is Status.UPDATE and each.size is not None:
        # With several tables, show no total: `rows` counts only the fact table, but the changes
        # include all tables.
        share = "" if each.tables > 1 else f"of {each.rows:,} "
        parts.append(f"+{each.inserted:,} -{each.deleted:,} {share}rows")
        limit = f" of {megabytes(each.limit)}" if each.limit else ""
        parts.append(f"{megabytes(each.size)}{limit}")
    elif each.kind is Status.PUBLISH and each.rows:
        size = f"about {megabytes(each.size)}" if each.size else "size not known"
        parts += [f"{each.rows:,} rows", size]
    return "  ".join(parts)


def _closing_line(kinds: Mapping[Status, int], size: int, unknown: int) -> str:
    """Return, for example, "Plan: 1 update, 0 publish, 1 refused, 38 unchanged; 2.40 MB"."""
    counts = [
        f"{kinds[kind]} {kind}" for kind in _COUNTED if kinds[kind] or kind in _ALWAYS_COUNTED
    ]
    more = f", and {unknown} of a size not known" if unknown else ""
    return f"Plan: {', '.join(counts)}; {megabytes(size)}{more}"

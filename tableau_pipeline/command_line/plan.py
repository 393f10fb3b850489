"""The command `plan`: what the next refreshes would do, and why. It changes nothing."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

import click
from rich.text import Text

from tableau_pipeline.command_line import CodeLocation, open_project
from tableau_pipeline.command_line.output import Output, reports, signed
from tableau_pipeline.components.git_revision import Look, declared_otherwise, revision
from tableau_pipeline.components.journal import newest_records
from tableau_pipeline.components.loading import misspelled
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.outcome import Code, Status
from tableau_pipeline.refresh.preview import Note, Preview, preview
from tableau_pipeline.rendering import Face, markdown_text, megabytes, rendered

# In the order of the closing line, which always has those of `_ALWAYS`.
_KINDS = (
    *(Status.UPDATE, Status.PUBLISH, Status.MOVE, Status.METADATA, Status.REMOVED),
    *(Status.REFUSED, Status.FAILED, Status.UNKNOWN, Status.UNCHANGED),
)
_ALWAYS = (Status.UPDATE, Status.PUBLISH, Status.REFUSED, Status.UNCHANGED)
_SIGNS = {
    Status.REFUSED: "!",
    Status.FAILED: "x",
    Status.UNCHANGED: "=",
    Status.UNKNOWN: "?",
    Status.REMOVED: "-",
}
# Whose decision would say the same.
_UNDECIDED = (Status.REFUSED, Status.FAILED, Status.UNKNOWN)
_OFFLINE = "Offline: what others changed on the server since the last refresh is not known."
_NO_HOME = "DAGSTER_HOME is not set: this is the plan of an instance that has published nothing."


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--offline",
    is_flag=True,
    help="Go by the records of the last refresh and the snapshots here; ask no server.",
)
@click.option("--base", metavar="REV", help="Only what is declared otherwise than in REV of git.")
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text")
@reports
def plan(
    module: str | None,
    names: Sequence[str],
    *,
    offline: bool,
    base: str | None,
    form: str,
    output: Output,
) -> int:
    """Show what the next refreshes would do, and why. It changes nothing.

    Exit code: 0 nothing would change, 2 something would, 1 one would be refused or fail.
    """
    left_out: Sequence[str] = ()
    if base is not None and not base.strip():
        raise click.UsageError("--base is empty: name a revision of git, or leave it out")
    with open_project(module, without_records=offline) as project:
        declared = project.named(names)
        past = revision(base, project.definitions) if base else None
        with _looking(project, output, offline=offline) as look:
            if past:
                found = list(declared_otherwise(past, declared, look, every=not names))
                left_out = past.left_out(declared)
            else:
                found = [look(each) for each in declared.values()]
    is_same = past and not found and not past.unread
    said = [f"Nothing is declared otherwise than in {base}."] if is_same else []
    said += [f"Not compared: {each}" for each in left_out] + [_OFFLINE] * offline
    said += [_NO_HOME] * (not os.environ.get("DAGSTER_HOME"))
    kinds = {kind: sum(each.kind == kind for each in found) for kind in _KINDS}
    size = sum(each.size or 0 for each in found)
    unknown = sum(
        each.size is None and each.kind in (Status.UPDATE, Status.PUBLISH) for each in found
    )
    closing = _closing(kinds, size, unknown)
    if past:
        closing = f"{len(found)} declared otherwise. {closing}"
    totals = {"counts": kinds, "size": size, "sizes_not_known": unknown, "left_out": left_out}
    lines = [*map(_tree, found), *map(Text, [*said, closing])]
    shown = [Text(_markdown(found, said, closing))] if form == "markdown" else lines
    output.result({"datasources": found, **totals}, *shown)
    if kinds[Status.REFUSED] or kinds[Status.FAILED]:
        return 1
    # As in Terraform. Whatever is declared otherwise is a change, and so may be what is not known.
    if past:
        return 2 if found or past.unread else 0
    return 2 if len(found) > kinds[Status.UNCHANGED] else 0


@contextmanager
def _looking(project: CodeLocation, output: Output, *, offline: bool) -> Generator[Look]:
    """A way to look at each data source as its refresh would, in one session."""
    counts = any(each.needs_counts for each in project.datasources.values())
    with project.resources() as resources, ExitStack() as stack:
        site, newest = None, newest_records(project.instance) if offline else None
        if not offline and project.datasources:
            site = stack.enter_context(resources.tableau.session(output.waits(), counts=counts))

        def look(each: PublishedDatasource) -> Preview:
            if site:
                output.progress(each.name)
            setup = project.setup(each, resources, newest)
            try:
                found = preview(replace(setup, server=lambda: nullcontext(site)), site)
                lacks = any(refusal.code is Code.NO_SNAPSHOT for refusal in found.refusals)
                looked = misspelled(project.definitions, each) if lacks else ()
                guesses = (Note("model", text) for text in looked)
                # People know it by the key without its environment.
                return replace(found, key=each.key, notes=(*found.notes, *guesses))
            finally:
                resources.snapshots.copies.release()

        yield look


def _reasons(each: Preview) -> list[str]:
    # There is one reason for no change, and most data sources have it.
    shown = "" if each.kind is Status.UNCHANGED else each.reason
    return [f"because: {text}" for text in shown.split("\n") if text]


def _more(each: Preview) -> list[str]:
    """A line for each thing to know beside the reasons."""
    fix = rendered(each.refusals, Face.COMMAND_LINE, key=each.key)
    return [
        *(f"{note.topic}: {note.text}" for note in each.notes),
        *([f"fix: {fix}"] if fix else ()),
    ]


def _tree(each: Preview) -> Text:
    """The head, and a branch for each thing to know; a line of any length stays whole."""
    tree = signed(_sign(each), f"{each.name}  {_head(each)}")
    branches = _reasons(each) + _more(each)
    for number, branch in enumerate(branches, 1):
        tree.append(f"\n{'└' if number == len(branches) else '├'}── {branch}")
    return tree


def _markdown(found: Sequence[Preview], said: Sequence[str], closing: str) -> str:
    """A comment for a pull request."""
    lines = []
    for each in found:
        lines.append(f"- `{_sign(each)}` **{markdown_text(each.name)}**: {_head(each)}")
        refused = rendered(each.refusals, Face.MARKDOWN, key=each.key)
        reasons = "\n".join(f"- {markdown_text(text)}" for text in _reasons(each))
        more = [f"- {markdown_text(text)}" for text in _more(each)]
        lines += [f"  {line}" for line in (*(refused or reasons).splitlines(), *more)]
    return "\n".join([*lines, "", *(f"{markdown_text(each)}\n" for each in said), f"**{closing}**"])


def _sign(each: Preview) -> str:
    return "+" if each.is_new else _SIGNS.get(each.kind, "~")


def _head(each: Preview) -> str:
    """Such as "update  +28,135 -0 of 308,641 rows  2.40 MB of 95.00 MB"."""
    parts = [each.decision if each.kind not in _UNDECIDED else each.kind]
    if each.kind is Status.UPDATE and each.size is not None:
        # Changes are those of all tables, and the rows of a data source those of its fact table.
        of = "" if each.tables > 1 else f"of {each.rows:,} "
        parts.append(f"+{each.inserted:,} -{each.deleted:,} {of}rows")
        limit = f" of {megabytes(each.limit)}" if each.limit else ""
        parts.append(f"{megabytes(each.size)}{limit}")
    elif each.kind is Status.PUBLISH and each.rows:
        size = f"about {megabytes(each.size)}" if each.size else "size not known"
        parts += [f"{each.rows:,} rows", size]
    return "  ".join(parts)


def _closing(kinds: Mapping[Status, int], size: int, unknown: int) -> str:
    """Such as "Plan: 1 update, 0 publish, 1 refused, 38 unchanged; 2.40 MB"."""
    counts = [f"{kinds[kind]} {kind}" for kind in _KINDS if kinds[kind] or kind in _ALWAYS]
    more = f", and {unknown} of a size not known" if unknown else ""
    return f"Plan: {', '.join(counts)}; {megabytes(size)}{more}"

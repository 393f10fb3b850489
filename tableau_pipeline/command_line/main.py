"""The command `tableau-pipeline`, with its subcommands and exit codes."""

import logging
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from tableau_pipeline.command_line.output import Output
from tableau_pipeline.errors import RefreshError

# Do not use 2: it means "could not look" for `status`, and "something would change" for `plan`.
WRONG_USAGE = 64
# The exit code if a command cannot be carried out; commands that are not listed return 1.
_FAILED = {"status": 2, "diff": 2}

# The commands, each with its module. Only the module of the given command is imported: `publish`
# needs neither Dagster nor Spark, which take seconds to import.
_COMMANDS = {
    "publish": "publish",
    **{name: name for name in ("status", "plan", "diff", "refresh")},
    **dict.fromkeys(("rollback", "hold", "release"), "rollback"),
    **{name: name for name in ("unlock", "doctor", "assess", "adopt", "remove", "deployment")},
}


class _Commands(click.Group):
    """Imports a command when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None if there is none of this name."""
        if (module := _COMMANDS.get(cmd_name)) is None:
            return None
        return getattr(import_module(f"tableau_pipeline.command_line.{module}"), cmd_name)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--module", metavar="MODULE", help="Module of the definitions.")
@click.option("--debug", is_flag=True, help="Show all that is logged, and where errors come from.")
@click.version_option(package_name="tableau_pipeline", message="%(version)s")
@click.pass_context
def tableau_pipeline(context: click.Context, module: str | None, *, debug: bool) -> None:
    """See and refresh the published data sources of a code location.

    A NAME is the asset key of a data source, or its name on the Tableau site.
    """
    context.obj = module
    # A command writes its results as output; the log is for runs.
    logging.getLogger("tableau_pipeline").setLevel(logging.DEBUG if debug else logging.ERROR)
    if debug:
        logging.basicConfig()


def run(args: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    arguments = list(sys.argv[1:] if args is None else args)
    command = next((argument for argument in arguments if argument in _COMMANDS), "")
    output = Output(as_json="--json" in arguments)
    try:
        code = tableau_pipeline.main(arguments, "tableau-pipeline", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return _stopped(output, error.format_message(), WRONG_USAGE)
    except click.exceptions.Abort:
        return _stopped(output, "The command was interrupted, or its question not confirmed", 130)
    except RefreshError as error:
        logging.getLogger(__name__).debug("", exc_info=error)
        output.problem(str(error))
        return _stopped(output, str(error), _FAILED.get(command, 1))
    except Exception as error:  # noqa: BLE001 - the exit code 1 of Python may mean something else
        # A mistake in the code of the project, or one of ours: where it is matters.
        output.problem("".join(traceback.format_exception(error)).rstrip())
        return _stopped(output, f"{type(error).__name__}: {error}", _FAILED.get(command, 1))
    return code or 0


def _stopped(output: Output, problem: str, code: int) -> int:
    """Write the problem that stopped a command for programs; return the exit code."""
    if output.as_json:
        output.result({"error": problem})
    return code

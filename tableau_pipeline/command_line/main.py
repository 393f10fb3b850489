"""The command `tableau-pipeline`, with its subcommands and exit codes."""

import logging
import signal
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import current_thread, main_thread

import click

from tableau_pipeline.command_line.output import Output
from tableau_pipeline.errors import RefreshError

# Click's own exit code, 2, has another meaning here. For `status`, it means that the status could
# not be determined; for `plan`, that a refresh would change something.
WRONG_USAGE = 64
# Exit codes of commands that failed to run. A command that is not listed here returns 1.
_FAILED = {"status": 2, "diff": 2}

# Maps each command to its module. Import the module of the given command alone: Dagster and Spark
# take seconds to import, and `publish` needs neither of them.
_COMMANDS = {
    "publish": "publish",
    **{name: name for name in ("status", "plan", "diff", "refresh")},
    **dict.fromkeys(("rollback", "hold", "release"), "rollback"),
    **{name: name for name in ("unlock", "doctor", "assess", "adopt", "remove", "deployment")},
}


class _Commands(click.Group):
    """Imports the module of a command only when a user runs the command or reads its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name; None if no command has this name."""
        if (module := _COMMANDS.get(cmd_name)) is None:
            return None
        return getattr(import_module(f"tableau_pipeline.command_line.{module}"), cmd_name)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--module", metavar="MODULE", help="Module of the definitions.")
@click.option("--debug", is_flag=True, help="Show all log messages, and tracebacks of errors.")
@click.version_option(package_name="tableau_pipeline", message="%(version)s")
@click.pass_context
def tableau_pipeline(context: click.Context, module: str | None, *, debug: bool) -> None:
    """Show and refresh the published data sources of a code location.

    A NAME is the asset key of a data source, or its name on the Tableau site.
    """
    context.obj = module
    # A command reports by its output, so hide log messages that are meant for the logs of runs.
    logging.getLogger("tableau_pipeline").setLevel(logging.DEBUG if debug else logging.ERROR)
    if debug:
        logging.basicConfig()


def run(args: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    arguments = list(sys.argv[1:] if args is None else args)
    command = next((argument for argument in arguments if argument in _COMMANDS), "")
    output = Output(as_json="--json" in arguments)
    received: list[int] = []
    try:
        with _interrupted_by_sigterm(received):
            code = tableau_pipeline.main(arguments, "tableau-pipeline", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return _stopped(output, error.format_message(), WRONG_USAGE)
    except click.exceptions.Abort:
        text = "The command was interrupted, or a question was not confirmed"
        output.problem(text)
        return _stopped(output, text, 128 + (received or [signal.SIGINT])[0])
    except RefreshError as error:
        logging.getLogger(__name__).debug("", exc_info=error)
        output.problem(str(error))
        return _stopped(output, str(error), _FAILED.get(command, 1))
    except Exception as error:  # noqa: BLE001 - Python's exit code, 1, may mean something else here
        # This error is a bug in the user's project or in this package, so show the traceback.
        output.problem("".join(traceback.format_exception(error)).rstrip())
        return _stopped(output, f"{type(error).__name__}: {error}", _FAILED.get(command, 1))
    return code or 0


@contextmanager
def _interrupted_by_sigterm(received: list[int]) -> Generator[None]:
    """Let SIGTERM interrupt the block as Ctrl-C does, so that the block cleans up.

    Containers and schedulers end a process by SIGTERM. Append a received signal to `received`.
    """
    if current_thread() is not main_thread():
        yield
        return

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stopped(output: Output, problem: str, code: int) -> int:
    """With `--json`, write the problem that stopped a command. Return the exit code."""
    if output.as_json:
        output.result({"error": problem})
    return code

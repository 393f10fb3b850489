"""Apply a batch to a file: the result is a new file or an error."""

import shutil
from pathlib import Path

from tableauhyperapi import Connection, HyperException, HyperProcess

from tableau_sandbox.batch.actions import EXECUTE
from tableau_sandbox.batch.conditions import Side
from tableau_sandbox.batch.errors import BatchError, Code
from tableau_sandbox.batch.grammar.batches import Action, Batch
from tableau_sandbox.batch.step import Step
from tableau_sandbox.batch.tables import find_table
from tableau_sandbox.batch.type_rules import check_condition
from tableau_sandbox.batch.unmatched import create_unmatched
from tableau_sandbox.hyperd import UnreadableFileError, connect, with_hyperd


def apply_batch(
    target: Path, payload: Path | None, batch: Batch, output: Path, *, lenient: bool = False
) -> None:
    """Apply a batch to `target` and write the result to `output`; write nothing if it fails.

    Args:
        target: a `.hyper` file, which does not change.
        payload: a `.hyper` file with the source tables, if the batch needs any.
        batch: the actions; later ones see the effects of earlier ones.
        output: the path of the new file.
        lenient: whether new rows have NULL in nullable columns that their source lacks.

    Raises:
        BatchError: an action cannot be carried out, or a file cannot be opened.
    """
    try:
        with_hyperd(lambda hyper: _apply_all(hyper, target, payload, batch, output, lenient))
    except UnreadableFileError as error:
        raise BatchError(Code.ENGINE, str(error)) from error


def _apply_all(
    hyper: HyperProcess,
    target: Path,
    payload: Path | None,
    batch: Batch,
    output: Path,
    lenient: bool,
) -> None:
    shutil.copyfile(target, output)
    try:
        with connect(hyper) as connection:
            _attach(connection, Side.TARGET, output)
            if payload is not None:
                _attach(connection, Side.SOURCE, payload)
            create_unmatched(connection)
            connection.execute_command("BEGIN")
            for position, action in enumerate(batch.actions):
                _apply(connection, action, position=position, lenient=lenient)
            connection.execute_command("COMMIT")
            # Closed so that the file is complete before anyone moves it.
            connection.catalog.detach_all_databases()
    except BaseException:
        output.unlink(missing_ok=True)
        raise


def _attach(connection: Connection, side: Side, path: Path) -> None:
    try:
        connection.catalog.attach_database(path, alias=side)
    except HyperException as error:
        # The rest of the message contains the sandbox's own path of the file.
        reason = str(error.main_message).partition(": DatabaseId")[0]
        raise BatchError(
            Code.UNREADABLE_FILE, f"The {side} file cannot be opened: {reason}."
        ) from error


def _apply(connection: Connection, action: Action, *, position: int, lenient: bool) -> None:
    target = find_table(connection, Side.TARGET, action.target, action=position)
    source = (
        find_table(connection, Side.SOURCE, action.source, action=position)
        if action.source
        else None
    )
    check_condition(action.condition, target=target, source=source, action=position)
    step = Step(connection, position, target, source, action.condition, lenient)
    try:
        EXECUTE[action.kind](step)
    except HyperException as error:
        raise BatchError(Code.ENGINE, f"{error.main_message}.", position) from error

"""Open uploaded files, and check them against the rules for published data sources."""

from dataclasses import dataclass
from pathlib import Path

from tableau_sandbox.content.hyper_file import HyperContent, convert_parquet, read_hyper_file
from tableau_sandbox.content.package import NotPublishableError, packaged_path, unpack
from tableau_sandbox.content.tds import TdsFacts, inspect_tds, write_tds
from tableau_sandbox.errors import refusal
from tableau_sandbox.hyperd import UnreadableFileError

HYPER = "hyper"
PACKAGE = "tdsx"
PARQUET = "parquet"
MODEL = "tds"
_MODEL_BYTES = 16 << 20


@dataclass(frozen=True)
class Content:
    """Content that may be published.

    Attributes:
        hyper_path: the path of the data; None for a model whose data are outside the server.
        packaged_path: the path of the data in the package that the server creates.
        tds: the model of the data source, as the `.tds` in the package has it.
        facts: facts from the model.
        hyper: the content of the data file.
    """

    hyper_path: Path | None
    packaged_path: str
    tds: bytes
    facts: TdsFacts
    hyper: HyperContent


def read_content(file: Path, *, name: str, file_type: str, table_ids: str) -> Content:
    """Open an uploaded file, and check it against the rules.

    Extracted and converted files go into the folder of the upload; `discard` removes them.

    Args:
        file: the upload.
        name: the name of the data source to publish.
        file_type: `HYPER`, `PACKAGE`, `PARQUET` or `MODEL`.
        table_ids: a value of the option `table_ids`: the form of table ids in the model that the
            sandbox writes for a bare file.

    Raises:
        RestError: 400011, the file may not be published.
    """
    try:
        if file_type == MODEL:
            return _model(file)
        content = _opened(file, name=name, file_type=file_type, table_ids=table_ids)
        # A package contains a model, which says how the tables are related.
        if file_type != PACKAGE:
            check_bare_file(content.hyper)
        return content
    except (UnreadableFileError, NotPublishableError) as error:
        detail = f"There was a problem publishing the file '{name}.{file_type}'. {error}"
        raise refusal("400011", detail) from error


def _opened(file: Path, *, name: str, file_type: str, table_ids: str) -> Content:
    if file_type == PACKAGE:
        return _package(file)
    if file_type == PARQUET:
        convert_parquet(file, hyper_path=_unpacked(file))
        file = _unpacked(file)
    return _bare(file, name=name, table_ids=table_ids)


def discard(file: Path) -> None:
    """Remove an uploaded file and the files made from it. A published file has already moved."""
    for leftover in (file, _unpacked(file), appended_file(file)):
        leftover.unlink(missing_ok=True)


def appended_file(file: Path) -> Path:
    """Return the path of the file that has the rows of an upload and the rows published before."""
    return file.with_suffix(".appended")


def _unpacked(file: Path) -> Path:
    return file.with_suffix(".hyper")


def _package(file: Path) -> Content:
    hyper_path = _unpacked(file)
    tds, path = unpack(file, hyper_path=hyper_path)
    facts = inspect_tds(tds)
    hyper = read_hyper_file(hyper_path)
    check_tables(hyper)
    return Content(hyper_path, path, tds, facts, hyper)


def _model(file: Path) -> Content:
    if file.stat().st_size > _MODEL_BYTES:
        raise NotPublishableError(f"the .tds is larger than {_MODEL_BYTES} bytes")
    tds = file.read_bytes()
    facts = inspect_tds(tds)
    if facts.has_extract or facts.connection_class == "hyper":
        raise NotPublishableError("The .tds refers to data that only a .tdsx can contain.")
    return Content(None, "", tds, facts, HyperContent((), ()))


def _bare(file: Path, *, name: str, table_ids: str) -> Content:
    hyper = read_hyper_file(file)
    path = packaged_path(name)
    check_tables(hyper)
    tds = write_tds(hyper, name=name, packaged_path=path, table_ids=table_ids)
    return Content(file, path, tds, TdsFacts("hyper", has_extract=False), hyper)


def check_tables(content: HyperContent) -> None:
    """Check that a file has tables, and that each table has columns.

    Raises:
        NotPublishableError: the file has no tables, or a table has no columns.
    """
    if not content.tables:
        raise NotPublishableError("The file contains no tables.")
    for table in content.tables:
        if not table.columns:
            raise NotPublishableError(f'The table "{table.schema}"."{table.name}" has no columns.')


def check_bare_file(content: HyperContent) -> None:
    """Check the tables of a file without a model, by the rules of servers.

    The Hyper API's guide to publishing states these rules for `.hyper` files: assumed foreign keys
    connect the tables into one tree with one fact table.

    Raises:
        NotPublishableError: the foreign keys do not connect the tables in this way.
    """
    tables = [(table.schema, table.name) for table in content.tables]
    parents = [key.parent for key in content.foreign_keys]
    facts = [table for table in tables if table not in parents]
    if len(facts) != 1:
        raise NotPublishableError(
            "Could not make a data source from the given Hyper file: it must contain exactly one"
            " fact table, that is, one table to which no assumed foreign key leads; it contains"
            f" {len(facts)}: {_names(facts) or 'none'}."
        )
    reached = _reached(content, facts[0])
    unreached = [table for table in tables if table not in reached]
    if unreached:
        raise NotPublishableError(
            "Assumed foreign keys must connect all tables; no chain of them leads from"
            f" {_names(facts)} to {_names(unreached)}."
        )
    shared = [table for table in tables if parents.count(table) > 1]
    if shared:
        raise NotPublishableError(
            "Assumed foreign keys must connect the tables into one tree; more than one leads to"
            f" {_names(shared)}."
        )


def _reached(content: HyperContent, start: tuple[str, str]) -> set[tuple[str, str]]:
    reached, ahead = {start}, [start]
    while ahead:
        table = ahead.pop()
        found = {key.parent for key in content.foreign_keys if key.child == table} - reached
        reached |= found
        ahead.extend(found)
    return reached


def _names(tables: list[tuple[str, str]]) -> str:
    return ", ".join(f'"{schema}"."{name}"' for schema, name in tables)

"""The bytes of files as text: unpacked, and decoded as declared or marked."""

import bz2
import codecs
import gzip
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from tableau_pipeline.errors import RefusedError

# Byte order marks, and the encodings that begin with each; the first decodes without it.
# Those of UTF-32 come first: the little-endian one begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: ("utf-32", "utf-32-le"),
    codecs.BOM_UTF32_BE: ("utf-32", "utf-32-be"),
    codecs.BOM_UTF8: ("utf-8-sig", "utf-8"),
    codecs.BOM_UTF16_LE: ("utf-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("utf-16", "utf-16-be"),
}
_GZIP = b"\x1f\x8b"


@contextmanager
def open_text(path: Path, encoding: str | None) -> Generator[TextIO]:
    """Open a file as text, without byte order mark, line ends unchanged; unpack gzip and bzip2.

    Args:
        encoding: Python's name of it; None for UTF-8, or UTF-16 with a byte order mark.

    Raises:
        RefusedError: the bytes are in another encoding, or damaged; names file and remedy.
    """
    try:
        with _opened(path) as file:
            name = _encoding(path, file.read(4), encoding)
        with _opened(path) as file, TextIOWrapper(file, encoding=name, newline="") as text:
            yield text
    except UnicodeDecodeError as error:
        raise RefusedError(_wrong_byte(path, name, error)) from error
    except EOFError as error:
        raise RefusedError(f"{path.name} is damaged: its compressed data end early") from error
    except (OSError, zlib.error) as error:
        # An error of the operating system has a number, and is not about the file's content.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise RefusedError(f"{path.name} is damaged: it cannot be unpacked ({error})") from error


def _opened(path: Path) -> BinaryIO:
    match path.suffix.lower():
        case ".gz":
            return cast("BinaryIO", gzip.open(path))
        case ".bz2":
            return cast("BinaryIO", bz2.open(path))
    return path.open("rb")


def _encoding(path: Path, start: bytes, given: str | None) -> str:
    # No text in any of the usual encodings begins so.
    if start.startswith(_GZIP):
        raise RefusedError(
            f"{path.name} is packed with gzip: unpack it, or let its name end in .gz"
        )
    marked = next((names for mark, names in _MARKS.items() if start.startswith(mark)), ())
    if given and marked and given not in marked:
        raise RefusedError(
            f"{path.name} begins with the byte order mark of {marked[0].removesuffix('-sig')}, so "
            f"it is not {given}: remove encoding"
        )
    # Without a mark Python would assume the byte order of the machine that runs it. And UTF-8 text
    # has no zero bytes in practice; the others have them in every Latin letter.
    if not marked and (given in ("utf-16", "utf-32") or (not given and b"\0" in start)):
        likely = "UTF-16BE" if start[:1] == b"\0" else "UTF-16LE"
        raise RefusedError(
            f"{path.name} has no byte order mark and is not UTF-8: set reader: "
            f"{{encoding: {likely}}}"
        )
    # This one leaves out the mark, which would become part of the first name.
    return marked[0] if marked else given or "utf-8"


def _wrong_byte(path: Path, encoding: str, error: UnicodeDecodeError) -> str:
    with _opened(path) as file, TextIOWrapper(file, encoding, errors="replace") as text:
        line = next((number for number, each in enumerate(text, 1) if "\ufffd" in each), 1)
    return (
        f"{path.name}, line {line}: the byte 0x{error.object[error.start]:02X} is not "
        f"{encoding.removesuffix('-sig').upper()}. Declare its encoding, such as reader: "
        "{encoding: windows-1252}"
    )

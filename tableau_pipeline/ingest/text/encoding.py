"""Files as text: UTF-8, UTF-16 with a byte order mark, or a declared encoding; never guessed."""

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

# Byte order marks, and the encodings that begin with each; the first name is shown or decoded with.
_MARKS = {
    # These come first: the little-endian mark of UTF-32 begins with that of UTF-16.
    codecs.BOM_UTF32_LE: ("UTF-32", "utf-32", "utf-32-le"),
    codecs.BOM_UTF32_BE: ("UTF-32", "utf-32", "utf-32-be"),
    codecs.BOM_UTF8: ("utf-8-sig", "utf-8"),
    codecs.BOM_UTF16_LE: ("utf-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("utf-16", "utf-16-be"),
}
_UNMARKED = {"utf-16": "UTF-16LE or UTF-16BE", "utf-32": "UTF-32LE or UTF-32BE"}
_GZIP = b"\x1f\x8b"
_SAY_ENCODING = "Declare its encoding, such as reader: {encoding: windows-1252}"


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
            # A declared encoding keeps the mark, which would become part of the first name.
            if text.read(1) != "\ufeff":
                text.seek(0)
            yield text
    except UnicodeDecodeError as error:
        raise RefusedError(_wrong_bytes(path, name)) from error
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
    names = next((names for bytes_, names in _MARKS.items() if start.startswith(bytes_)), ())
    mark = names[0] if names else None
    if given:
        # Without a mark Python would assume the byte order of the machine that runs it.
        if given in _UNMARKED and not mark:
            raise RefusedError(
                f"{path.name} has no byte order mark: set reader: {{encoding: {_UNMARKED[given]}}}"
            )
        if mark and given not in names:
            remedy = "set encoding: UTF-32" if mark == "UTF-32" else "remove encoding"
            raise RefusedError(
                f"{path.name} begins with the byte order mark of {_shown(mark)}, so it is not "
                f"{given}: {remedy}"
            )
        return given
    # UTF-8 text has no zero bytes in practice; the others have them in every Latin letter.
    if mark == "UTF-32" or (not mark and b"\0" in start):
        likely = mark or ("UTF-16BE" if start[:1] == b"\0" else "UTF-16LE")
        raise RefusedError(
            f"{path.name} is not UTF-8: it seems to be {likely}. If so, set reader: "
            f"{{encoding: {likely}}}"
        )
    return mark or "utf-8"


def _wrong_bytes(path: Path, encoding: str) -> str:
    """Locate the first wrong byte; the text reader decodes in blocks and cannot."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    with _opened(path) as file:
        while True:
            block = file.read(1 << 16)
            try:
                line += decoder.decode(block, final=not block).count("\n")
            except UnicodeDecodeError as error:
                good = error.object[: error.start].decode(encoding, errors="ignore")
                line += good.count("\n")
                wrong = error.object[error.start]
                return (
                    f"{path.name}, line {line}: the byte 0x{wrong:02X} is not {_shown(encoding)}. "
                    f"{_SAY_ENCODING}"
                )
            if not block:
                return f"{path.name} is not {_shown(encoding)}. {_SAY_ENCODING}"


def _shown(encoding: str) -> str:
    return {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "utf-16": "UTF-16"}.get(encoding, encoding)

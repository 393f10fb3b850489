"""Take a file out of a packaged data source (`.tdsx`), which others may have written."""

import shutil
import zlib
from pathlib import Path
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from tableau_pipeline.core.declaration import megabytes
from tableau_pipeline.errors import RefreshError


def unpack(package: Path, suffix: str, into: IO[bytes], *, limit: int) -> None:
    """Write the only file with this suffix, such as ".hyper".

    Raises:
        ValueError: there is none, or several, or the package is damaged.
        RefreshError: the file unpacks to more than `limit` bytes.
    """
    try:
        with ZipFile(package) as opened:
            found = _only(opened, suffix)
            # Nothing more is unpacked than this says, and in small pieces.
            if found.file_size > limit:
                raise RefreshError(
                    f"its {suffix} file unpacks to {megabytes(found.file_size)}, more than "
                    f"{megabytes(limit)}"
                )
            with opened.open(found) as file:
                shutil.copyfileobj(file, into)
    # A password is a RuntimeError, a feature that zipfile lacks a NotImplementedError.
    except (BadZipFile, EOFError, RuntimeError, zlib.error) as error:
        raise ValueError(f"the package is damaged: {error}") from error


def _only(package: ZipFile, suffix: str) -> ZipInfo:
    found = [one for one in package.infolist() if one.filename.lower().endswith(suffix)]
    if len(found) != 1:
        raise ValueError(f"the package holds {len(found)} {suffix} files, not one")
    # The others unpack a piece of any size at once. Tableau does not use them.
    if found[0].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ValueError(f"its {suffix} file is compressed in another way than Tableau's are")
    return found[0]

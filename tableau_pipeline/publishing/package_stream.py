"""Read the `.tds` from a package during the download, and stop the download after the `.tds`."""

import struct
import zlib
from collections.abc import Iterator

# The local header of a member, after its signature: version, flags, method, time, date, CRC, packed
# and unpacked size, lengths of the name and of the extra fields (APPNOTE.TXT, section 4.3.7).
_HEADER = struct.Struct("<5H3L2H")
_MEMBER, _DESCRIPTOR = b"PK\x03\x04", b"PK\x07\x08"
_HEADERS = (_MEMBER, b"PK\x01\x02")
_ENCRYPTED, _SIZES_FOLLOW = 0x1, 0x8
_STORED, _DEFLATED = 0, 8
_IN_EXTRA, _ZIP64 = 0xFFFFFFFF, 1
_PIECE = 2**16


def read_tds(pieces: Iterator[bytes], *, limit: int) -> bytes:
    """Return the `.tds` from a package that arrives in pieces; read nothing after the `.tds`.

    The `zipfile` module cannot do this: it first reads the directory of the package. The directory
    is at the end of the package, so it arrives only after gigabytes of rows.

    Args:
        pieces: the package, or a `.tds` alone, which is returned as a whole.
        limit: the largest allowed size of the `.tds` in bytes. Other members may have any size.

    Raises:
        ValueError: the `.tds` is missing or larger than `limit`, or the package is damaged.
    """
    stream = _Stream(pieces)
    signature = stream.read(4)
    if signature != _MEMBER:
        return signature + stream.rest(limit)
    while signature == _MEMBER:
        _, flags, method, _, _, _, packed, _, name_length, extra_length = _HEADER.unpack(
            stream.read(_HEADER.size)
        )
        name, extra = stream.read(name_length), stream.read(extra_length)
        if flags & _ENCRYPTED or method not in (_STORED, _DEFLATED):
            raise ValueError(
                "the package is encrypted, or compressed in a way that Tableau does not use"
            )
        packed = _packed_size(extra) if packed == _IN_EXTRA else packed
        is_tds = name.lower().endswith(b".tds")
        if method == _DEFLATED:
            content = stream.inflate(limit if is_tds else None)
        elif flags & _SIZES_FOLLOW:
            raise ValueError("the package does not say where its members end")
        elif is_tds and packed > limit:
            raise _too_large(limit)
        else:
            content = stream.read(packed) if is_tds else stream.skip(packed)
        if is_tds:
            return content
        signature = _skip_sizes(stream) if flags & _SIZES_FOLLOW else stream.read(4)
    raise ValueError("the package holds no .tds file")


def _too_large(limit: int) -> ValueError:
    return ValueError(f"its .tds has more than {limit} bytes")


def _packed_size(extra: bytes) -> int:
    """Return the packed size of a member of four gigabytes or more, from its extra fields."""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == _ZIP64 and length >= 16:
            return struct.unpack_from("<Q", extra, 12)[0]
        extra = extra[4 + length :]
    raise ValueError("the package does not say how large its members are")


def _skip_sizes(stream: "_Stream") -> bytes:
    """Skip the CRC and the sizes that follow a member; return the next signature."""
    # A signature before the CRC is optional. Each size has four bytes, or eight in a large package:
    # try four first.
    is_marked = stream.read(4) == _DESCRIPTOR
    stream.skip(12 if is_marked else 8)
    signature = stream.read(4)
    if signature in _HEADERS:
        return signature
    stream.skip(4)
    return stream.read(4)


class _Stream:
    """Reads any number of bytes from pieces of any length."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._buffer = pieces, b""

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        parts = [*self._pieces_of(count)]
        return b"".join(parts)

    def skip(self, count: int) -> bytes:
        """Skip the next `count` bytes; return b""."""
        for _ in self._pieces_of(count):
            pass
        return b""

    def _pieces_of(self, count: int) -> Iterator[bytes]:
        while count:
            piece, self._buffer = self._next_piece(), b""
            self._buffer = piece[count:]
            yield piece[:count]
            count -= len(piece[:count])

    def _next_piece(self) -> bytes:
        while not self._buffer:
            try:
                self._buffer = next(self._pieces)
            except StopIteration as error:
                raise ValueError("the package ends too early") from error
        return self._buffer

    def rest(self, limit: int) -> bytes:
        """Return all remaining bytes."""
        content = self._buffer
        for piece in self._pieces:
            content += piece
            if len(content) > limit:
                raise _too_large(limit)
        return content

    def inflate(self, limit: int | None) -> bytes:
        """Return the content of a compressed member; if `limit` is None, skip it and return b""."""
        decompressor, content = zlib.decompressobj(-zlib.MAX_WBITS), b""
        while not decompressor.eof:
            packed = decompressor.unconsumed_tail or self._next_piece()
            self._buffer = b""
            try:
                piece = decompressor.decompress(packed, _PIECE)
            except zlib.error as error:
                raise ValueError(f"the package is damaged: {error}") from error
            if limit is not None:
                content += piece
                if len(content) > limit:
                    raise _too_large(limit)
        self._buffer = decompressor.unused_data
        return content

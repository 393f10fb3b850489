"""Convert a published `.tds` into the form in which a server returns it.

Two public copies of one data source show the form: one as Tableau Desktop saved it, and one as a
server of version 2025.3 returned it. Both are named `WorldIndicators.tdsx`, in
https://github.com/tableau/tabcmd. The functions here change only what differed between the copies.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from xml.sax.saxutils import escape

_SERVER = "https://tableau-sandbox.example.com"
# Comments and processing instructions stay as they are. In other markup, `>` occurs only in quotes
# or at the end.
_MARKUP = re.compile(
    r"""(<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<(?:[^>"']|"[^"]*"|'[^']*')*>)""", re.DOTALL
)
_ATTRIBUTE = re.compile(r"""\s+([^\s=/>]+)\s*=\s*("[^"]*"|'[^']*')""")
_ENCODING = re.compile(rb"""^<\?xml[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
# Tableau's products use this prefix until a release officially supports an element or attribute.
_FEATURE = re.compile(r"_\.fcp\.\w+\.(true|false)\.\.\.")
_MANIFEST, _LOCATION, _BASE = "document-format-change-manifest", "repository-location", "xml:base"
_DROPPED = frozenset({"access_mode", "sslmode", "username"})


def served_path(packaged_path: str) -> str:
    """Return the path at which a server puts the `.hyper` file of a package."""
    return f"Data/Extracts/{_file(packaged_path)}" if packaged_path else ""


def served_tds(tds: bytes, *, packaged_path: str, content_url: str, site: str) -> bytes:
    """Return an uploaded `.tds` in the form in which a server returns it.

    A document that already has this form stays the same.

    Args:
        tds: well-formed XML without a document type.
        packaged_path: the path of the `.hyper` file in the package; "" without a `.hyper` file.
        content_url: the content URL of the data source.
        site: the content URL of the site.
    """
    declared = _ENCODING.match(tds.removeprefix(b"\xef\xbb\xbf"))
    marks = (b"\xff\xfe", b"\xfe\xff")
    # UTF-16 always has a byte order mark here: `inspect_tds` refuses UTF-16 without this mark.
    encoding = "utf-16" if tds.startswith(marks) else declared[1].decode() if declared else "utf-8"
    writer = _Writer(packaged_path, _location(content_url, site=site))
    return writer.written(tds.decode(encoding)).encode(encoding, "xmlcharrefreplace")


def _location(content_url: str, *, site: str) -> str:
    attributes = {
        "id": content_url,
        "path": f"/t/{site}/datasources" if site else "/datasources",
        "revision": "1.0",
        **({"site": site} if site else {}),
    }
    return f"<{_LOCATION}{''.join(_attribute(*each) for each in attributes.items())} />"


def _attribute(name: str, value: str) -> str:
    return f" {name}='{escape(value, {chr(39): '&apos;'})}'"


def _file(path: str) -> str:
    # The document may contain Windows paths.
    return PurePosixPath(path.replace("\\", "/")).name


@dataclass
class _Writer:
    """Converts one document; create a new writer for the next document.

    Attributes:
        packaged_path: the path of the `.hyper` file in the package.
        location: the element that states where the data source is published.
        open: the names, as in the output, of the elements around the current place; None marks an
            element that is left out.
        pieces: the text written so far.
        indent: the text before the first element inside the root.
    """

    packaged_path: str
    location: str
    open: list[str | None] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    indent: str | None = None

    def written(self, text: str) -> str:
        """Return the document in the form of a server."""
        for number, piece in enumerate(_MARKUP.split(text)):
            if number % 2 and not piece.startswith(("<!", "<?")):
                self._add_tag(piece)
            elif None not in self.open:
                self.pieces.append(piece)
        return "".join(self.pieces)

    def _add_tag(self, tag: str) -> None:
        name = re.split(r"[\s/>]", tag[1:].removeprefix("/"), maxsplit=1)[0]
        plain = _plain(name)
        if tag.startswith("</"):
            self._end(f"</{plain}>")
            return
        is_alone = tag.endswith("/>")
        self.open.append(self._kept(plain))
        if None not in self.open:
            self._begin(tag, name=name)
        elif self.open.count(None) == 1 and self.open[-1] is None:
            self._drop_indent()
        if is_alone:
            self._end("")

    def _kept(self, plain: str | None) -> str | None:
        is_location = plain == _LOCATION and len(self.open) == 1
        return None if is_location else plain

    def _drop_indent(self) -> None:
        if self.pieces and not self.pieces[-1].strip():
            self.pieces.pop()

    def _begin(self, tag: str, *, name: str) -> None:
        if len(self.open) == 2 and self.indent is None:
            before = self.pieces[-1]
            self.indent = "" if before.strip() else before
            if self.open[-1] != _MANIFEST:
                self.pieces += [self.location, self.indent]
        attributes = "".join(self._attributes(tag[1 + len(name) :]))
        self.pieces.append(f"<{self.open[-1]}{attributes}{_end_of(tag)}")

    def _end(self, tag: str) -> None:
        is_kept, ended = None not in self.open, self.open.pop()
        if is_kept:
            self.pieces.append(tag)
            # If the document has a manifest, the manifest is the first element.
            if ended == _MANIFEST and len(self.open) == 1:
                self.pieces += [self.indent or "", self.location]

    def _attributes(self, text: str) -> Iterator[str]:
        found = [(_plain(each[1]), each) for each in _ATTRIBUTE.finditer(text)]
        marked = {name for name, each in found if name != each[1]}
        values = {name: html.unescape(each[2][1:-1]) for name, each in found}
        is_root = needs_base = len(self.open) == 1
        is_hyper = self.open[-1] == "connection" and values.get("class") == "hyper"
        of_extract = is_hyper and self.open[-2:-1] == ["extract"]
        for name, each in found:
            if needs_base and name and name >= _BASE:
                yield _attribute(_BASE, _SERVER)
                needs_base = False
            if name is None or (name == each[1] and name in marked):
                continue
            if (is_root and name == _BASE) or (of_extract and name in _DROPPED):
                continue
            if is_hyper and name == "dbname" and self._is_packaged(values[name]):
                yield _attribute(name, served_path(self.packaged_path))
            else:
                yield each[0].replace(each[1], name, 1)
        if needs_base:
            yield _attribute(_BASE, _SERVER)

    def _is_packaged(self, path: str) -> bool:
        return bool(self.packaged_path) and _file(path) == _file(self.packaged_path)


def _plain(name: str) -> str | None:
    """Return a name without feature prefixes; None if the name is only for older products."""
    while mark := _FEATURE.match(name):
        if mark[1] == "false":
            return None
        name = name[mark.end() :]
    return name


def _end_of(tag: str) -> str:
    """Return the end of a tag, with the space before it."""
    found = re.search(r"\s*/?>$", tag)
    return found[0] if found else ">"

"""Marks that servers leave in a `.tds` without changing its meaning."""

import re

_ROOT = re.compile(rb"""<datasource(?=[\s/>])(?:[^>'"]|'[^']*'|"[^"]*")*>""")
_BUILD = re.compile(rb"""\ssource-build\s*=\s*(?:'[^']*'|"[^"]*")""")
_LOCATION = re.compile(rb"""<repository-location\s(?:[^>'"]|'[^']*'|"[^"]*")*/>""")


def mark_tds(tds: bytes, *, content_url: str, revision: int, mark: int) -> bytes:
    """Add to a `.tds` the build that wrote it, and its location on the server.

    Args:
        tds: returned unchanged if its encoding is not compatible with ASCII.
        content_url: the content URL of the data source.
        revision: the revision of the data source.
        mark: a number that differs for each state of the data source.
    """
    root = _ROOT.search(tds)
    if root is None:
        return tds
    before, tag, after = tds[: root.start()], root.group(), tds[root.end() :]
    build = b"<datasource source-build='0.0.%d'" % mark
    tag = build + _BUILD.sub(b"", tag).removeprefix(b"<datasource")
    location = (
        f"<repository-location id='{content_url}' path='/datasources' revision='1.{revision}'"
        f" derived-from='/datasources/{content_url}?rev=1.{mark}' />"
    )
    return before + tag + location.encode("ascii", "xmlcharrefreplace") + _LOCATION.sub(b"", after)

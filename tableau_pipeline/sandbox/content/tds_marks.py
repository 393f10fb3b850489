"""The marks that servers leave in a `.tds` without changing what it says."""

import re

_ROOT = re.compile(rb"""<datasource(?=[\s/>])(?:[^>'"]|'[^']*'|"[^"]*")*>""")
_BUILD = re.compile(rb"""\ssource-build\s*=\s*(?:'[^']*'|"[^"]*")""")
_LOCATION = re.compile(rb"""<repository-location\s(?:[^>'"]|'[^']*'|"[^"]*")*/>""")


def mark_tds(tds: bytes, *, content_url: str, revision: int, mark: int) -> bytes:
    """A `.tds` with the build that has written it, and with its place on the server.

    Args:
        tds: left as it is if it is in no encoding that looks like ASCII.
        content_url: of the data source.
        revision: of the data source.
        mark: a number that differs from state to state of the data source.
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

"""Hooks of MkDocs for `make docs`: add pages of the top folder, and refuse remote resources."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_ROOT = Path(__file__).parents[1]
# Files of the top folder that the site shows as pages.
_PAGES = {
    "README.md": "getting-started.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}

# A browser fetches these by itself: scripts, styles, images, frames and fonts.
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*?\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|\burl\(["']?((?:https?:)?//[^"')]+)""",
    re.IGNORECASE,
)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the top folder, as if they were in docs/."""
    for name, page in _PAGES.items():
        text = (_ROOT / name).read_text("utf-8").replace("](docs/", "](")
        for other, moved in _PAGES.items():
            text = text.replace(f"]({other}", f"]({moved}")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Redirect links from docs/ to files of the top folder, so that they lead to these pages."""
    for name, page in _PAGES.items():
        markdown = markdown.replace(f"../{name}", page)
    return markdown


def on_post_build(config: Any, **_: Any) -> None:
    """Fail the build if a page would fetch something from the network.

    Raises:
        ValueError: a page would fetch something; the message lists the pages and the addresses.
    """
    site = Path(config["site_dir"])
    found = [
        f"{file.relative_to(site)}: {next(filter(None, match))}"
        for kind in ("*.html", "*.css", "*.svg")
        for file in sorted(site.rglob(kind))
        for match in _FETCHED.findall(file.read_text("utf-8"))
    ]
    if found:
        raise ValueError("the site would fetch from the network:\n" + "\n".join(found))

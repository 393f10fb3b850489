"""Files beside a declaration that Dagster does not load."""

import re
from pathlib import Path

from tableau_pipeline.components.attributes.base import DeclarationError

_FOLDER = re.compile(r"^type: *[\"']?dagster\.(components\.)?DefsFolderComponent\b", re.MULTILINE)
# Modules that the file itself refers to: `template_vars_module: .vars`, or `type:
# .local.Component`.
_NAMED = re.compile(r"^(?:template_vars_module|type): *[\"']?\.(\w+)", re.MULTILINE)


def refuse_passed_over(file: Path) -> None:
    """Refuse Python files beside a `defs.yaml` that does not load the files of its folder.

    Raises:
        DeclarationError: names the files and the remedy.
    """
    text = file.read_text("utf-8")
    if _FOLDER.search(text):
        return
    named = set(_NAMED.findall(text))
    found = [
        str(each.relative_to(file.parent))
        for each in sorted(file.parent.rglob("*.py"))
        # A module that does not mention Dagster has no definitions to lose.
        if each.stem not in named and "dagster" in each.read_text("utf-8", errors="replace")
    ]
    if found:
        raise DeclarationError(
            f"{file}:1: Dagster skips {', '.join(found)} beside this file: put "
            "`type: dagster.DefsFolderComponent` and a line `---` at its top"
        )

"""Show the contents of a site in a report by their names, or by tokens instead of names."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.publishing.inventory import ProjectItem
from tableau_pipeline.publishing.rest import RefreshTask

# Matches Tableau's error code in messages of this package.
_CODE = re.compile(r"\b(?:failed:|answered) (\d{6})\b")


class Names:
    """Shows names unchanged."""

    def datasource(self, remote: RemoteDatasource) -> str:
        """Return the name of a data source."""
        return remote.name

    def place(self, remote: RemoteDatasource) -> tuple[str, str]:
        """Return the LUID of a data source, and the address of its page."""
        return remote.luid, remote.link or ""

    def project(self, luid: str, found: ProjectItem | None, name: str) -> str:
        """Return the path of a project; only its name if the path is unknown."""
        return found.path if found else name or luid

    def user(self, luid: str, name: str) -> str:
        """Return the name of a user."""
        return name or luid

    def text(self, kind: str, text: str) -> str:
        """Return a text of another kind, such as the address of the server."""
        return text

    def rows(self, tables: Mapping[str, int]) -> Mapping[str, int]:
        """Return the number of rows of each table, under the name of the table."""
        return tables

    def tasks(self, tasks: Sequence[RefreshTask]) -> Sequence[RefreshTask]:
        """Return refresh tasks with the names of their schedules."""
        return tasks

    def reason(self, text: str) -> str:
        """Return a message that may quote the server."""
        return text


@dataclass(frozen=True, slots=True)
class Tokens(Names):
    """Shows tokens instead of names, ids and addresses. The tokens are the same in each run.

    A token is a hash of the site's LUID and of the item's LUID. If an item has no LUID, the token
    uses its name. Without the site's LUID, which cannot be guessed, a reader cannot compute the
    token of a known name. But a user who may list the contents of the site can compute tokens.

    Attributes:
        site: the LUID of the site.
    """

    site: str

    def datasource(self, remote: RemoteDatasource) -> str:
        """Return a token."""
        return self.text("datasource", remote.luid)

    def place(self, remote: RemoteDatasource) -> tuple[str, str]:
        """Return empty strings, because a LUID or an address would identify the data source."""
        return "", ""

    def project(self, luid: str, found: ProjectItem | None, name: str) -> str:
        """Return a path of tokens."""
        luids = found.luids if found else (luid,)
        return "/".join(self.text("project", part) for part in luids)

    def user(self, luid: str, name: str) -> str:
        """Return a token."""
        return self.text("user", luid)

    def text(self, kind: str, text: str) -> str:
        """Return a token, such as "server-1f2e3d4c5b"."""
        digest = hashlib.sha256(f"{self.site}\n{text}".encode()).hexdigest()
        return f"{kind}-{digest[:10]}"

    def rows(self, tables: Mapping[str, int]) -> Mapping[str, int]:
        """Return the number of rows of each table, under a number instead of the table's name."""
        numbered = enumerate(tables[name] for name in sorted(tables))
        return {f"table-{number}": rows for number, rows in numbered}

    def tasks(self, tasks: Sequence[RefreshTask]) -> Sequence[RefreshTask]:
        """Return tasks without their ids and addresses, and without the names of schedules."""
        # Remove the name of the schedule, which comes first, in quotes, and may contain quotes.
        return [replace(task, id="", url="", when=task.when.rpartition('", ')[2]) for task in tasks]

    def reason(self, text: str) -> str:
        """Return only the error code of a message, because the message may contain names."""
        code = _CODE.search(text)
        return (
            f"the server answered {code[1]}"
            if code
            else "the reason is hidden, because it may contain names"
        )

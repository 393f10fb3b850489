"""The names of what is found on a site, or tokens in their place."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.publishing.inventory import ProjectItem
from tableau_pipeline.publishing.rest import RefreshTask

# The code of an answer of Tableau, in our messages.
_CODE = re.compile(r"\b(?:failed:|answered) (\d{6})\b")


class Names:
    """Shows everything by its name."""

    def datasource(self, remote: RemoteDatasource) -> str:
        """Return the name of a data source."""
        return remote.name

    def place(self, remote: RemoteDatasource) -> tuple[str, str]:
        """Return its LUID, and the address of its page."""
        return remote.luid, remote.link or ""

    def project(self, luid: str, found: ProjectItem | None, name: str) -> str:
        """Return the path of a project; `name` is its own where its path is not known."""
        return found.path if found else name or luid

    def user(self, luid: str, name: str) -> str:
        """Return the name of a user."""
        return name or luid

    def text(self, kind: str, text: str) -> str:
        """Return a name of another kind, such as the address of the server."""
        return text

    def rows(self, tables: Mapping[str, int]) -> Mapping[str, int]:
        """Return the rows by the names of tables."""
        return tables

    def tasks(self, tasks: Sequence[RefreshTask]) -> Sequence[RefreshTask]:
        """Return refresh tasks with the names of their schedules."""
        return tasks

    def reason(self, text: str) -> str:
        """Return a message that may quote the server."""
        return text


@dataclass(frozen=True, slots=True)
class Tokens(Names):
    """Shows no name, id or address: each has a token that is the same in each run.

    A token is made of a LUID where there is one, with that of the site. Nobody can guess these, but
    whoever may list the site can make the tokens of all that it has.

    Attributes:
        site: the LUID of the site.
    """

    site: str

    def datasource(self, remote: RemoteDatasource) -> str:
        """Return a token."""
        return self.text("datasource", remote.luid)

    def place(self, remote: RemoteDatasource) -> tuple[str, str]:
        """Return nothing: both lead to the data source."""
        return "", ""

    def project(self, luid: str, found: ProjectItem | None, name: str) -> str:
        """Return a path of tokens."""
        luids = found.luids if found else (luid,)
        return "/".join(self.text("project", each) for each in luids)

    def user(self, luid: str, name: str) -> str:
        """Return a token."""
        return self.text("user", luid)

    def text(self, kind: str, text: str) -> str:
        """Return a token, such as "server-1f2e3d4c5b"."""
        made = hashlib.sha256(f"{self.site}\n{text}".encode()).hexdigest()
        return f"{kind}-{made[:10]}"

    def rows(self, tables: Mapping[str, int]) -> Mapping[str, int]:
        """Return the rows of numbered tables."""
        numbered = enumerate(tables[name] for name in sorted(tables))
        return {f"table-{number}": rows for number, rows in numbered}

    def tasks(self, tasks: Sequence[RefreshTask]) -> Sequence[RefreshTask]:
        """Return tasks without their ids and addresses, and without the names of schedules."""
        # A name comes first, in quotes, and may have some of its own.
        return [replace(e, id="", url="", when=e.when.rpartition('", ')[2]) for e in tasks]

    def reason(self, text: str) -> str:
        """Return the code of the answer alone: what a server says may name anything."""
        code = _CODE.search(text)
        return f"the server answered {code[1]}" if code else "the reason may name something"

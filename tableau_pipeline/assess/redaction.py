"""Replace names, users and addresses in a report by tokens, the same ones each time."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tableau_pipeline.assess.assessment import Assessment

_ADDRESS = re.compile(r"https?://[^\s\"']+")
_LUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_DIGITS = 8


def token(kind: str, luid: str) -> str:
    """Return the token of something on a site. LUIDs are random, so that nobody can guess it."""
    return f"{kind}-{hashlib.sha256(luid.encode()).hexdigest()[:_DIGITS]}"


@dataclass(frozen=True, slots=True)
class Redaction:
    """Hides what must not be told.

    Args:
        tokens: by the names that they stand for.
    """

    tokens: Mapping[str, str]

    @classmethod
    def of(cls, found: Assessment, *, hosts: Iterable[str]) -> "Redaction":
        """The tokens of all names in an assessment, and of these addresses and sites."""
        tokens = {name: "site" for name in hosts if name}
        for luid, name in found.names.items():
            for part in (name, *name.split("/")):
                tokens.setdefault(part, token("name", luid if part == name else part + luid))
        for extract in found.extracts:
            for table in extract.tables:
                tokens[table] = token("table", extract.luid + table)
            tokens[extract.name] = token("datasource", extract.luid)
        return cls({name: found for name, found in tokens.items() if name})

    def hidden(self, text: str) -> str:
        """Return a text without the names, addresses and LUIDs."""
        text = _ADDRESS.sub("address", text)
        text = _LUID.sub(lambda found: token("luid", found[0]), text)
        if not self.tokens:
            return text
        names = sorted(self.tokens, key=len, reverse=True)
        folded = {name.casefold(): each for name, each in self.tokens.items()}
        form = re.compile("|".join(map(re.escape, names)), re.IGNORECASE)
        return form.sub(lambda found: folded.get(found[0].casefold(), "name"), text)

"""Rows that do not fit their columns: counted, and reported by line, column and value."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from pyspark.sql.types import DataType, StructField, StructType

from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.values.hints import hint

# How many bad rows are quoted; a few are enough if the whole file is wrong.
_QUOTED = 5
_KEPT = 50
_LONGEST = 80


@dataclass
class _Column:
    """Some values of a column, of those that do not fit its type and of those that do."""

    type: DataType
    bad: list[str] = field(default_factory=list)
    good: list[str] = field(default_factory=list)


@dataclass
class BadRows:
    """The bad rows of files that were read together.

    Attributes:
        total: the number of bad rows.
        examples: messages about the first ones.
    """

    options: Options
    total: int = 0
    examples: list[str] = field(default_factory=list)
    _columns: dict[str, _Column] = field(default_factory=dict)

    def add(self, place: str, problem: str) -> None:
        """Count a row; `place` is its file and line."""
        self.total += 1
        if len(self.examples) < _QUOTED:
            self.examples.append(f"{place}: {problem}")

    def problem(self, column: StructField, shown: str, *, text: str | None) -> str:
        """Describe a value that does not fit its column, and keep it for `hints`.

        Args:
            text: the value, if an option might read it; None otherwise.
        """
        type_ = column.dataType
        if text is not None:
            texts = self._columns.setdefault(column.name, _Column(type_)).bad
            if len(texts) < _KEPT:
                texts.append(text)
        shown = printable(shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}...")
        return f'column "{column.name}": {shown} is not a valid {type_.simpleString()}'

    def keep_good(self, name: str, texts: Iterable[str]) -> None:
        """Keep good values of a column that has bad ones: an option has to read both."""
        if column := self._columns.get(name):
            column.good += islice(texts, _KEPT - len(column.good))

    @property
    def hints(self) -> list[str]:
        """The options that would read the bad values, if there are any."""
        found = [
            hint(each.type, each.bad, self.options, others=each.good)
            for each in self._columns.values()
        ]
        return list(dict.fromkeys(each for each in found if each))

    def message(self, columns: StructType) -> str:
        """Return the message for all bad rows, with the remedies."""
        described = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in columns)
        rows = "1 row does" if self.total == 1 else f"{self.total:,} rows do"
        more = (
            f"; and {self.total - len(self.examples):,} more"
            if self.total > len(self.examples)
            else ""
        )
        remedies = "; ".join([*self.hints, "fix the file", "declare other columns"])
        return (
            f"{rows} not fit the columns {described}: {'; '.join(self.examples)}{more}. "
            f"{remedies[:1].upper()}{remedies[1:]}, or leave such rows out with bad_rows: drop"
        )


def printable(text: str) -> str:
    """Escape the characters of a text that cannot be shown, such as line breaks."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )

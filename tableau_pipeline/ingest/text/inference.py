"""Infer column types: the narrowest type that fits every value without changing it."""

import re
from collections.abc import Iterable
from decimal import Decimal

from pyspark.sql import types as T

from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.values.parsers import Parser, parser

# 007 and +49 are codes, and so is 12E4, unless it is written as programs write numbers.
_PLAIN = r"-?(?:(?:0|[1-9]\d*)(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(rf"{_PLAIN}(?:[eE][+-]\d+)?|-?\d\.\d+E\d+", re.ASCII)


class Guess:
    """The type of one column, narrowed by every value that is seen."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._empty = True
        numbers: list[T.DataType] = [T.IntegerType(), T.LongType(), T.DoubleType()]
        # A date format that the user set may consist of digits only, as yyyyMMdd does.
        declared = [(T.DateType(), options.date), (T.TimestampType(), options.timestamp)]
        times: list[T.DataType] = [type_ for type_, pattern in declared if pattern]
        types = [*times, *numbers, T.DateType(), T.TimestampType(), T.BooleanType()]
        self._left: list[tuple[T.DataType, Parser]] = [
            (type_, read) for type_ in types if (read := parser(type_, options))
        ]

    def see(self, texts: Iterable[str | None]) -> None:
        """Narrow the type by some values; NULL and the empty text fit every type."""
        # Columns repeat their values, and each one needs only one look.
        for text in set(texts):
            if text and text != self._options.null:
                self._empty = False
                self._left = [each for each in self._left if self._fits(*each, text)]

    @property
    def type(self) -> T.DataType:
        """The narrowest type that fits all values; string if none does, or if all are NULL."""
        return self._left[0][0] if self._left and not self._empty else T.StringType()

    def _fits(self, type_: T.DataType, read: Parser, text: str) -> bool:
        try:
            value = read(text)
        except ValueError:
            return False
        if isinstance(type_, T.DateType | T.TimestampType | T.BooleanType):
            return True
        plain = text.replace(self._options.thousands, "") if self._options.thousands else text
        plain = plain.replace(self._options.decimal, ".")
        if not _NUMBER.fullmatch(plain):
            return False
        if isinstance(type_, T.DoubleType):
            # The number is exact if its shortest representation equals the text.
            return Decimal(repr(value)) == Decimal(plain)
        # As an integer, -0 would lose its sign.
        return plain != "-0"

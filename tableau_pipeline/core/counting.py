"""What a server can count of the tables that it publishes."""

from typing import Literal

# What the server counts to learn the rows of a table; each way gives the exact number:
# * "table": the table itself.
# * "key": a column without NULL.
# * "cells": a column, by a calculation that takes NULL for a value. It needs a data source with
#   this table alone.
CountWay = Literal["table", "key", "cells"]

# The rows of a table, and the way in which they were counted.
Counted = tuple[int, CountWay]

# The number of values of a column that are not NULL, the number of different ones among them, and
# if asked for, the least and the greatest as text.
ColumnCounts = tuple[int | str, ...]

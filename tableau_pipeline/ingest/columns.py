"""Parse, without Spark, the columns that a user declares for files in Spark's DDL."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tableau_pipeline.errors import FilesError
from tableau_pipeline.hyper.types import Column, name_problems

# Further names that Spark accepts for its types.
_ALIASES = {
    "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float",
    "timestamp_ltz": "timestamp", "dec": "decimal", "numeric": "decimal", "character": "char",
}  # fmt: skip
_NAMES_IN_JSON = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
# The number of arguments that a type may have; types that are not listed have none.
_ARGUMENTS = {"decimal": (0, 1, 2), "char": (1,), "varchar": (1,)}
_TYPES = {
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp"),
    *("timestamp_ntz", "string", "binary", "void", "variant", *_ARGUMENTS),
}
# Types with their own syntax of arguments; no column of a text file has such a type.
_OTHERS = re.compile(r"(array|map|struct)<.+>|interval( .+)?|time(\(\d\))?", re.DOTALL)
_MOST_DIGITS = 38
_QUOTED = r"""`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TOKEN = re.compile(rf"{_QUOTED}|[<(]|[>)]|,|[^`'\"<>(),]+|.", re.DOTALL)
_COLUMN = re.compile(
    rf"(?P<name>`(?:[^`]|``)*`|\w+)(?:\s*:\s*|\s+|(?<=`))(?P<type>.+?)(?:\s+not\s+null)?"
    rf"(?:\s+comment\s+(?P<comment>{_QUOTED}))?",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of files, in order; the keys of `comments` are column names."""

    columns: tuple[Column, ...]
    comments: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def ddl(self) -> str:
        """The names and types for messages."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def quoted_ddl(self) -> str:
        """The names, types and comments for Spark."""
        parts = []
        for column in self.columns:
            name, comment = column.name.replace("`", "``"), self.comments.get(column.name)
            text = comment.replace("\\", "\\\\").replace("'", "\\'") if comment else ""
            parts.append(f"`{name}` {column.type}" + f" COMMENT '{text}'" * bool(comment))
        return ", ".join(parts)


def spark_schema(columns: Columns) -> str:
    """Return the schema with the comments, in the form that Spark stores in Parquet files."""
    fields = []
    for column in columns.columns:
        comment = columns.comments.get(column.name)
        about = {"comment": comment} if comment else {}
        type_ = _NAMES_IN_JSON.get(column.type, column.type)
        fields.append({"name": column.name, "type": type_, "nullable": True, "metadata": about})
    return json.dumps({"type": "struct", "fields": fields})


def declared_columns(text: str) -> Columns:
    """Parse columns such as "id bigint, day date", as Spark does.

    Raises:
        FilesError: the text is not Spark's DDL, or a name is empty or repeated.
    """
    columns, comments = list[Column](), dict[str, str]()
    for part in _parts(text):
        match = _COLUMN.fullmatch(part.strip())
        type_ = _type(match["type"]) if match else None
        if match is None or type_ is None:
            near = f'near "{part.strip()}"' if part.strip() else "a column is empty"
            raise FilesError(
                f'columns: "{text}" cannot be parsed ({near}): write names and types '
                'as Spark does, "id bigint, day date", names with blanks in `backticks`',
            )
        name = match["name"]
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        columns.append(Column(name, type_))
        if match["comment"]:
            comments[name] = re.sub(r"\\(.)", r"\1", match["comment"][1:-1], flags=re.DOTALL)
    found = Columns(tuple(columns), comments)
    check_names(found.names, "columns")
    return found


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse column names that are empty, or that Spark cannot distinguish.

    Raises:
        FilesError: the message begins with `where`, and states the problems.
    """
    if problems := name_problems(names):
        raise FilesError(f"{where}: {'; '.join(problems)}")


def kind_of(type_: str) -> str:
    """Return the name of a type without arguments: "decimal" for "decimal(10,2)"."""
    return re.split(r"[ (<]", type_, maxsplit=1)[0]


def arguments_of(type_: str) -> tuple[int, ...]:
    """Return the arguments of a type: (10, 2) for "decimal(10,2)"."""
    return tuple(map(int, re.findall(r"\d+", type_.partition("(")[2])))


def _parts(text: str) -> list[str]:
    """Split a text at the commas outside brackets and quotes."""
    parts, depth = [""], 0
    for piece in _TOKEN.findall(text):
        depth += (piece in ("<", "(")) - (piece in (">", ")"))
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def _type(text: str) -> str | None:
    """Return Spark's name of a type; None if Spark has no such type."""
    plain = re.sub(r"\s*([(),<>:])\s*", r"\1", text.strip())
    if match := re.fullmatch(r"string\s+collate\s+(\w+)", plain, re.IGNORECASE):
        return f"string collate {match[1]}"
    if _OTHERS.fullmatch(plain.lower()):
        return plain
    match = re.fullmatch(r"(\w+)(?:\((\d+(?:,\d+)*)\))?", plain.lower())
    if match is None:
        return None
    kind = _ALIASES.get(match[1], match[1])
    numbers = [int(number) for number in match[2].split(",")] if match[2] else []
    if kind not in _TYPES or len(numbers) not in _ARGUMENTS.get(kind, (0,)):
        return None
    if kind == "decimal":
        precision, scale = [*numbers, 10][0], [*numbers, 0, 0][1]
        return f"decimal({precision},{scale})" if scale <= precision <= _MOST_DIGITS else None
    return f"{kind}({numbers[0]})" if numbers else kind

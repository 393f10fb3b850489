"""Relationships between the tables of a `.hyper` file, and the form that Tableau requires."""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated

from pydantic import Field

from tableau_pipeline.yaml_keys import keyed, written_as


@keyed
class Relationship:
    """A many-to-one relationship: many rows of `from` refer to one row of `to`.

    The `.hyper` file stores the relationship as an assumed foreign key of the table `many`.
    """

    many: Annotated[str, Field(validation_alias="from", description="Table of the many side.")]
    one: Annotated[str, Field(validation_alias="to", description="Table of the one side.")]
    on: Annotated[
        tuple[tuple[str, str], ...],
        written_as(Annotated[dict[str, str], Field(min_length=1)], lambda on: tuple(on.items())),
    ] = Field(description="The columns of the key: each column of `from`, and its column of `to`.")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row of the table `one`."""
        return tuple(column for _, column in self.on)

    def __str__(self) -> str:
        return f"{self.many} -> {self.one}"


def tree_problem(tables: Sequence[str], relationships: Sequence[Relationship]) -> str | None:
    """Return why Tableau refuses a file with these tables; None if Tableau accepts the file.

    Tableau (2021.4 and later) requires one fact table. From the fact table, exactly one path of
    relationships, each from many to one, must lead to every other table.
    """
    reached_from: dict[str, str] = {}
    for edge in relationships:
        if edge.one in reached_from:
            return (
                f'table "{edge.one}" is the "to" of two relationships, from '
                f'"{reached_from[edge.one]}" and from "{edge.many}"; Tableau needs one path to '
                "each table. Publish a second copy of that table under another name, or leave out "
                "one relationship"
            )
        reached_from[edge.one] = edge.many
    facts = [table for table in tables if table not in reached_from]
    try:
        TopologicalSorter({one: [many] for one, many in reached_from.items()}).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        return f"these relationships form a circle: {circle}. Leave one of them out"
    if len(facts) != 1:
        names = ", ".join(f'"{table}"' for table in facts) or "none"
        return (
            "Tableau needs exactly one fact table, which no relationship points to; here: "
            f"{names}. Connect every table by a relationship from the many side to the one side"
        )
    return None

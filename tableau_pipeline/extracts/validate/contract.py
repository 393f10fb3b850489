"""The contract of a table: the columns that its model must have."""

import re
from collections.abc import Iterator, Sequence

from tableau_pipeline.core.declaration import Table
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types.type_policy import TypePolicy

# Spark accepts several names for some types, but reports only one.
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}


def spark_name(type_: str) -> str:
    """Return a type as Spark reports it: "Decimal (10, 2)" becomes "decimal(10,2)"."""
    plain = re.sub(r"\s*([(),<>:])\s*", r"\1", type_.strip())
    if re.search(r"[<:]|collate", plain, re.IGNORECASE):
        # Names of fields and collations inside the type are case-sensitive.
        return plain
    plain = plain.lower()
    plain = re.sub(r"^(dec|numeric)\b", "decimal", plain)
    return _ALIASES.get(plain, "decimal(10,0)" if plain == "decimal" else plain)


def contract_problems(table: Table, columns: Sequence[Column], types: TypePolicy) -> Iterator[str]:
    """Yield a sentence with all differences between a contract and the actual columns.

    Args:
        columns: the actual columns, with the types that the data source declares.
    """
    if not table.columns:
        return
    promised = {column.name: types.apply(column).type for column in table.columns}
    found = {column.name: column.type for column in columns}
    differences = [
        *(f"{name} ({type_}) is missing" for name, type_ in promised.items() if name not in found),
        *(
            f"{name} is {found[name]}, not {type_}"
            for name, type_ in promised.items()
            if name in found and found[name] != type_
        ),
        *(f"{name} ({found[name]}) is not in it" for name in found if name not in promised),
    ]
    if differences:
        yield (
            f'Table "{table.name}": model "{table.model}" breaks the contract of its columns: '
            f"{'; '.join(differences)}. Fix the model, or change `columns`"
        )

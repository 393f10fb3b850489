"""The run config of the job that publishes files."""

import hashlib
from typing import cast, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tableau_pipeline.components.asset_keys import asset_key_of
from tableau_pipeline.components.published_datasource.assets import RefreshConfig
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.policies import Diff, Partitions, Policy, Replace
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.types.type_policy import Nested, TypePolicy
from tableau_pipeline.ingest import Format, check_options

_CHOICES = {
    "format": get_args(Format),
    "mode": ("replace", "append", "as_is"),
    "bad_rows": ("refuse", "drop"),
    "nested": get_args(Nested),
}


class PublishFileConfig(RefreshConfig):
    """Which files, or which table of a database, become which data source."""

    path: str = Field(
        min_length=1,
        description='A file, a folder, or a pattern such as "exports/*.csv"; or the JDBC URL of a '
        'database, "jdbc:postgresql://host/shop".',
    )
    name: str = Field(min_length=1, description="Name of the data source on the Tableau site.")
    project: str = Field(default="Default", description='Path of the project, "A/B".')
    mode: str = Field(
        default="replace",
        description="replace: the files are all there is. append: their rows are kept beside those "
        "of files that were added before; a file of the same name replaces its own. as_is: one "
        "Parquet file, sent as it is, of which the server makes the extract.",
    )
    format: str | None = Field(
        default=None, description="csv, json or parquet; default: by the files' ending."
    )
    table: str | None = Field(
        default=None, description='Of a database: its name, or a query, "(SELECT ...) rows".'
    )
    credentials: str = Field(
        default="JDBC",
        description="The user and password of a database are the environment variables "
        "<credentials>_USER and <credentials>_PASSWORD.",
    )
    reader: dict[str, str] = Field(
        default_factory=dict,
        description="How CSV and JSON are written: sep, decimal, thousands, encoding, dateFormat, "
        "timestampFormat, nullValue, header, ...; of a database, options of Spark's JDBC reader.",
    )
    columns: str | None = Field(
        default=None,
        description='Columns as Spark writes them, "id bigint, day date"; default: found out.',
    )
    bad_rows: str = Field(
        default="refuse",
        description="Rows that do not fit the columns: refuse, or drop; they are always counted "
        "and told by line, column and value.",
    )
    key: list[str] = Field(
        default_factory=list,
        description="Columns that identify a row: then only the rows that changed are sent.",
    )
    file_column: str | None = Field(
        default=None,
        description="With mode append: a column to add, with the name of each row's file; then "
        "only the files that are new or changed are sent.",
    )
    nested: str = Field(
        default="refuse", description="Arrays, maps and structs: refuse, or their text as json."
    )
    create_project: bool = Field(default=False, description="Create the project if it is absent.")
    adopt: bool = Field(
        default=False, description="Take over a data source that this pipeline did not publish."
    )

    # Dagster's configs know no Literal.
    @field_validator(*_CHOICES)
    @classmethod
    def _one_of(cls, value: str | None, info: ValidationInfo) -> str | None:
        choices = _CHOICES[str(info.field_name)]
        if value is not None and value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "PublishFileConfig":
        if self.is_database and not self.table:
            raise ValueError('path is the URL of a database: say which table, "public.orders"')
        if self.table and not self.is_database:
            raise ValueError('table goes with a path such as "jdbc:postgresql://host/shop"')
        if self.is_database and self.mode != "replace":
            raise ValueError(f"mode {self.mode} goes with files, not with a database")
        if self.mode == "as_is":
            self._nothing_but_the_file()
        elif not self.is_database:
            self._known_options()
        if self.is_database and self.columns:
            raise ValueError("columns goes with files: a database tells the types of its columns")
        if self.file_column and self.mode != "append":
            raise ValueError("file_column goes with mode append")
        return self

    def _known_options(self) -> None:
        formats = (cast("Format", self.format),) if self.format else get_args(Format)
        try:
            check_options(self.reader, *formats)
        except RefusedError as error:
            raise ValueError(str(error)) from error

    def _nothing_but_the_file(self) -> None:
        settings = {
            "publish: false": not self.publish,
            "key": self.key,
            "columns": self.columns,
            "reader": self.reader,
            "bad_rows: drop": self.bad_rows == "drop",
            "nested: json": self.nested == "json",
        }
        if wrong := [name for name, value in settings.items() if value]:
            raise ValueError(
                f"mode as_is sends the file unread: it cannot go with {', '.join(wrong)}"
            )

    @property
    def is_database(self) -> bool:
        """Whether a table is read, and no files."""
        return self.path.startswith("jdbc:")

    def declaration(self) -> Declaration:
        """The data source that the files become, by a tag that no declared one has."""
        # Names that differ in other characters only, or in the project, are other data sources.
        place = hashlib.sha256(f"{self.project}/{self.name}".encode()).hexdigest()[:8]
        key = f"files/{asset_key_of(self.name)}_{place}"
        return Declaration(
            key=key,
            name=self.name,
            project=self.project,
            tables=(Table(self.name, f"{key}/rows", policy=self._policy()),),
            create_project=self.create_project,
            adopt=self.adopt,
            types=TypePolicy(nested=cast("Nested", self.nested)),
        )

    def _policy(self) -> Policy:
        if self.key:
            return Diff(tuple(self.key))
        return Partitions(self.file_column) if self.file_column else Replace()

"""The run config of the job that publishes files."""

import hashlib
from typing import cast, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tableau_pipeline.components.asset_keys import asset_key_of
from tableau_pipeline.components.published_datasource.assets import RefreshConfig
from tableau_pipeline.core.declaration import Declaration, Reconcile, Table
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
    """Which files, or which database table, to publish as which data source."""

    path: str = Field(
        min_length=1,
        description='A file, a folder, or a pattern such as "exports/*.csv"; or the JDBC URL of a '
        'database, "jdbc:postgresql://host/shop".',
    )
    name: str = Field(min_length=1, description="Name of the data source on the Tableau site.")
    project: str = Field(default="Default", description='Path of the project, "A/B".')
    mode: str = Field(
        default="replace",
        description="replace: the data source holds the rows of these files only. append: they are "
        "added to the rows of earlier files; a file of the same name replaces its own rows. as_is: "
        "one Parquet file, sent unread; the server makes the extract from it.",
    )
    format: str | None = Field(
        default=None, description="csv, json or parquet. Default: by file name suffix."
    )
    table: str | None = Field(
        default=None, description='For a database: a table name or a query, "(SELECT ...) rows".'
    )
    credentials: str = Field(
        default="JDBC",
        description="For a database: its user and password come from the environment variables "
        "<credentials>_USER and <credentials>_PASSWORD.",
    )
    reader: dict[str, str] = Field(
        default_factory=dict,
        description="Options for reading CSV and JSON: sep, decimal, thousands, encoding, "
        "dateFormat, timestampFormat, nullValue, header, ... For a database: options of Spark's "
        "JDBC reader.",
    )
    columns: str | None = Field(
        default=None,
        description='Columns as a Spark schema, "id bigint, day date". Default: inferred.',
    )
    bad_rows: str = Field(
        default="refuse",
        description="Rows that do not fit the columns: refuse or drop. They are always counted, "
        "and reported by line, column and value.",
    )
    key: list[str] = Field(
        default_factory=list,
        description="Columns that identify a row. With them, only the rows that changed are sent.",
    )
    file_column: str | None = Field(
        default=None,
        description="With mode append: name of a column to add, which holds the name of each row's "
        "file. With it, only new and changed files are sent.",
    )
    nested: str = Field(
        default="refuse", description="Arrays, maps and structs: refuse, or publish as json text."
    )
    create_project: bool = Field(default=False, description="Create the project if it is absent.")
    adopt: bool = Field(
        default=False,
        description="Take over a data source that this pipeline did not publish. Only its rows are "
        "replaced if its columns and types are the same; otherwise this needs accept: [overwrite].",
    )

    # Dagster's config classes do not support Literal.
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
            raise ValueError('path is the URL of a database: set table, such as "public.orders"')
        if self.table and not self.is_database:
            raise ValueError('table needs a path such as "jdbc:postgresql://host/shop"')
        if self.is_database and self.mode != "replace":
            raise ValueError(f"mode {self.mode} needs files, not a database")
        if self.mode == "as_is":
            self._nothing_but_the_file()
        elif not self.is_database:
            self._known_options()
        if self.is_database and self.columns:
            raise ValueError(
                "columns needs files: remove it, a database knows the types of its columns"
            )
        if self.file_column and self.mode != "append":
            raise ValueError("file_column needs mode append")
        return self

    def _known_options(self) -> None:
        # Until the files are found the format may be unknown, so an option of any format passes.
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
            raise ValueError(f"mode as_is sends the file unread: remove {', '.join(wrong)}")

    @property
    def is_database(self) -> bool:
        """Whether the path is the URL of a database."""
        return self.path.startswith("jdbc:")

    def declaration(self) -> Declaration:
        """Return the data source that the files become, with a key that no declared one has."""
        # The hash separates names that differ only in special characters or in the project.
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
            # The rows of a file that is sent as it is are not known here.
            reconcile=None if self.mode == "as_is" else Reconcile(),
        )

    def _policy(self) -> Policy:
        if self.key:
            return Diff(tuple(self.key))
        return Partitions(self.file_column) if self.file_column else Replace()

"""What a data source says about itself beside its fields, and who may do what with it."""

from collections.abc import Iterator
from dataclasses import KW_ONLY
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tableau_pipeline.keys import keyed, mistake
from tableau_pipeline.metadata.merge import Path, Values

# Prefixes of the tags that mark a data source as published by a pipeline, and by which deployment.
TAG_PREFIX = "tableau-pipeline:"
INSTANCE_TAG_PREFIX = "tableau-pipeline-instance:"

# What Tableau's REST API calls the capabilities of data sources.
Capability = Literal[
    "Read",
    "Connect",
    "ExportXml",
    "SaveAs",
    "Write",
    "VizqlDataApiAccess",
    "PulseMetricDefine",
    "ExtractRefresh",
    "ChangeHierarchy",
    "Delete",
    "ChangePermissions",
]
DESCRIPTION, OWNER = ("about", "description"), ("about", "owner")
CERTIFIED, NOTE = ("about", "certified"), ("about", "certification note")
_LONGEST_TAG = 200


@keyed
class Permission:
    """What the users of a group, or a user, may and may not do with the data source."""

    group: str | None = Field(
        default=None, min_length=1, description='Name of a group of the site, "All Users".'
    )
    user: str | None = Field(
        default=None, min_length=1, description="Instead of a group: name of a user."
    )
    allow: tuple[Capability, ...] = Field(
        default=(),
        description="Capabilities, as the REST API calls them. Read: View. ExportXml: Download. "
        "Write: Overwrite. VizqlDataApiAccess: API Access. ChangeHierarchy: Move.",
    )
    deny: tuple[Capability, ...] = Field(default=(), description="Capabilities, as in `allow`.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if bool(self.group) == bool(self.user):
            raise ValueError("name either a group or a user: {group: Analysts, allow: [Read]}")
        if both := sorted(set(self.allow) & set(self.deny)):
            raise mistake(("deny",), f"{both[0]} is in `allow`, too: leave it out of one of them")
        return self

    @property
    def grantee(self) -> tuple[str, str]:
        """Such as ("group", "Analysts")."""
        return ("group", self.group) if self.group else ("user", str(self.user))

    @property
    def modes(self) -> Iterator[tuple[str, str]]:
        """The capabilities, each with "Allow" or "Deny"."""
        yield from ((each, "Allow") for each in self.allow)
        yield from ((each, "Deny") for each in self.deny)


def _tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    for tag in tags:
        if not 0 < len(tag.strip()) <= _LONGEST_TAG:
            raise ValueError(f'"{tag}" is no tag: Tableau takes 1 to {_LONGEST_TAG} characters')
        if tag.startswith((TAG_PREFIX, INSTANCE_TAG_PREFIX)):
            raise ValueError(f'"{tag}" is a tag by which pipelines find what is theirs')
    return tags


@keyed
class About:
    """The keys of a data source that are about all of it."""

    _: KW_ONLY
    description: str | None = Field(
        default=None,
        description="What Tableau shows as its description. A line with its models, and with "
        "PIPELINE_WEB_URL a link to the asset, are added. Default: left to people.",
    )
    owner: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the user who is to own it. Default: left as it is, which is the "
        "pipeline's user after the first publish.",
    )
    tags: Annotated[tuple[str, ...], AfterValidator(_tags)] = Field(
        default=(), description="Tags that it is to have. Those of people stay."
    )
    certify: Literal["after_reconcile"] | None = Field(
        default=None,
        description="after_reconcile: certify it once the published rows were found equal to the "
        "models, and withdraw that if they are not. Default: left to people.",
    )
    certification_note: str | None = Field(
        default=None, description="With `certify`: the note beside the certification."
    )
    permissions: tuple[Permission, ...] = Field(
        default=(),
        description="What groups and users may do, [{group: Analysts, allow: [Read, Connect]}]. "
        "What is not named here is left to people.",
    )
    quality_warning: bool = Field(
        default=False,
        description="While a refresh is refused or fails, or the data source is late, a sensor "
        "of `TableauPipeline` sets a data quality warning. Needs a site with Data Management.",
    )

    @model_validator(mode="after")
    def _about_is_consistent(self) -> Self:
        if self.certification_note and not self.certify:
            raise mistake(("certification_note",), "it needs certify: after_reconcile")
        named = [each.grantee for each in self.permissions]
        for number, grantee in enumerate(named):
            if grantee in named[:number]:
                problem = f'{grantee[0]} "{grantee[1]}" is named before, too: write one list'
                raise mistake(("permissions", number), problem)
        return self

    def about(self, *, lineage: str, certified: bool) -> Values:
        """Return the values that are declared of the data source itself.

        Args:
            lineage: where the data source comes from, which is added to its description.
            certified: whether it is to be certified by now, if that is declared.
        """
        values: dict[Path, str] = {}
        if self.description is not None:
            values[DESCRIPTION] = "\n\n".join(filter(None, (self.description.strip(), lineage)))
        if self.owner:
            values[OWNER] = self.owner
        if certified and self.certify:
            values[CERTIFIED] = "yes"
            values |= {NOTE: self.certification_note} if self.certification_note else {}
        values |= {("tag", tag): "yes" for tag in self.tags}
        for each in self.permissions:
            values |= {("permission", *each.grantee, name): mode for name, mode in each.modes}
        return values

"""Decide by our records and by tags who publishes a data source, and whether we may change it.

In this module, ownership means which deployment and key publish a data source. The user who owns
the data source in Tableau does not matter here.
"""

from dataclasses import dataclass

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.drift import RemoteDatasource, other_instance, other_key
from tableau_pipeline.core.identity import root_of
from tableau_pipeline.outcome import Accept, Code, Refusal

# The most data sources that a message lists.
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which deployment and key publish a data source.

    Attributes:
        is_ours: whether the data source is ours: by our records, by our tag, or because our request
            has just created it.
        candidates: all data sources with our tag, of which `remote` is the first. Empty if a data
            source has the recorded LUID, or the declared name and project.
        other_instance: the tag of another deployment that publishes the data source; None if no
            other deployment does.
        other_key: another key of this deployment under which the data source is published; None if
            there is no other key.
    """

    remote: RemoteDatasource
    is_ours: bool
    candidates: tuple[RemoteDatasource, ...] = ()
    other_instance: str | None = None
    other_key: str | None = None

    @classmethod
    def of(
        cls,
        remote: RemoteDatasource,
        tags: frozenset[str],
        *,
        is_ours: bool,
        candidates: tuple[RemoteDatasource, ...] = (),
    ) -> "Ownership":
        """Return the ownership that the tags of a data source show.

        Args:
            tags: our tags, see `core.identity.tags_of`.
        """
        instance, key = other_instance(remote, tags), other_key(remote, tags)
        return cls(remote, is_ours, candidates, instance, key)

    def of_others(self, key: str, *, takeover: bool = False) -> Refusal | None:
        """Return a refusal if another environment, key or deployment publishes the data source.

        Args:
            key: the key of our declaration.
            takeover: whether to take over the data source from another key or deployment. A
                takeover from another environment is never allowed.
        """
        remote = self.remote
        if self.other_instance and root_of(self.other_instance) != root_of(key):
            return Refusal(
                f"{_label(remote)} is published by another environment (tag "
                f'"{self.other_instance}"), and another environment cannot take it over. '
                "Nothing was changed",
                Code.OTHER_ENVIRONMENT,
                remedy="Move it back, rename it, or remove its tags",
            )
        if self.other_key and not takeover:
            return Refusal(
                f'"{remote.name}" is published under the key "{self.other_key}", by this '
                f'deployment (tag "tableau-pipeline:{self.other_key}"). Nothing was changed',
                Code.OTHER_KEY,
                Accept.TAKEOVER,
                remedy=f'If "{self.other_key}" is the former `key` of this declaration, run once '
                f'with accept: [takeover], to go on with it as "{key}". If another declaration has '
                "that key, give one of the two another name or project",
            )
        if self.other_instance and not takeover:
            return self._of_another_deployment(self.other_instance)
        return None

    def refusal(self, declaration: Declaration, *, takeover: bool) -> Refusal | None:
        """Return a refusal if we must not publish over the data source; otherwise None.

        Args:
            takeover: see `of_others`.
        """
        if len(self.candidates) > 1:
            places = ", ".join(_label(remote) for remote in self.candidates[:_MAX_LISTED])
            return Refusal(
                f'Several data sources carry the tag "{declaration.tag}": {places}. Nothing was '
                "changed",
                Code.SEVERAL_TAGGED,
                remedy="Remove the tag from all but one of them",
            )
        others = self.of_others(declaration.key, takeover=takeover)
        if others and others.code is not Code.OTHER_DEPLOYMENT:
            return others
        if not self.is_ours and not declaration.adopt and not self.other_key:
            return Refusal(
                f'A data source "{self.remote.name}" exists in project '
                f'"{declaration.project_path}" that this pipeline did not publish. Nothing was '
                "changed",
                Code.NOT_PUBLISHED_HERE,
                remedy="Choose another name, or set adopt: true to take it over, which replaces "
                "its data. Calculated fields, captions and folders stay as far as its columns are "
                "among ours; the next refresh lists what would go, and asks",
            )
        if others or not self.candidates or takeover:
            return others
        return Refusal(
            f"{_label(self.remote)} carries the tag of this data source "
            f'("{declaration.tag}"), under another name or in another project than declared, and '
            "no record of this deployment names it. Nothing was created",
            Code.STRAY,
            Accept.TAKEOVER,
            remedy="Run once with accept: [takeover] to go on with it where it is; or remove the "
            f'tag from it, or delete it, to publish a new one as "{declaration.name}" in '
            f'"{declaration.project_path}"',
        )

    def _of_another_deployment(self, instance: str) -> Refusal:
        stray = self.candidates and (
            "It has the key of this declaration, but another name or project: if both are to be "
            "published, give this one a `key` of its own. Otherwise, r"
        )
        return Refusal(
            f"{_label(self.remote)} is published by another deployment of this pipeline (tag "
            f'"{instance}")',
            Code.OTHER_DEPLOYMENT,
            Accept.TAKEOVER,
            remedy=f"{stray or 'R'}emove it from one of the two, or let this one take it over: run "
            "once with accept: [takeover], or set TABLEAU_TAKEOVER=true for a deployment whose "
            "records were lost",
        )


def _label(remote: RemoteDatasource) -> str:
    return f'"{remote.name}" ({remote.link or remote.luid})'

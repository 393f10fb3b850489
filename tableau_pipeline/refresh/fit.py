"""Whether a built update fits. Nothing here has effects."""

from dataclasses import replace
from math import ceil

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import OversizePolicy
from tableau_pipeline.refresh.increment import Increment
from tableau_pipeline.refresh.plan import Publish, Update

# A payload of n slices is larger than one: every file has its own overhead.
_ROOM = 1.3


def confirm(
    update: Update,
    increment: Increment,
    *,
    published: int | None,
    limit: int,
    oversize: OversizePolicy,
) -> Update | Publish:
    """The update, or the whole file where that is smaller, or the only way.

    Args:
        published: bytes of the file that was last published whole, if that is known.
        limit: bytes that a payload may have.
    """
    size = increment.extract.size
    if published is not None and size > published:
        return in_full(
            update, f"the update of {_mb(size)} is larger than the whole file of {_mb(published)}"
        )
    whole = {name: each.whole for name, each in increment.tables.items()}
    confirmed = replace(update, tables=whole, reason=_in_words(update, increment))
    if size <= limit:
        return confirmed
    too_large = f"the update of {_mb(size)} exceeds the limit of {_mb(limit)} for payloads"
    if oversize == "publish" or not limit or all(whole.values()):
        return in_full(update, too_large)
    return replace(
        confirmed,
        pieces=ceil(size / limit * _ROOM),
        reason=f"{confirmed.reason}; split, because {too_large}",
    )


def in_full(update: Update, problem: str) -> Publish:
    """The whole file instead of an update."""
    return Publish(PublishMode.REPLACE, f"in full: {update.reason}; {problem}")


def _in_words(update: Update, increment: Increment) -> str:
    tables = [
        f"{name} -{each.deleted:,} +{each.inserted:,} rows"
        + (f" (whole: {each.whole})" if each.whole else "")
        for name, each in increment.tables.items()
    ]
    return f"{update.reason}: {'; '.join(tables)}"


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

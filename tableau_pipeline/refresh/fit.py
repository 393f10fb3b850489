"""Whether a built update fits. Nothing here has effects."""

from dataclasses import replace

from tableau_pipeline.refresh.increment import Increment
from tableau_pipeline.refresh.plan import Publish, Update
from tableau_pipeline.refresh.state import PublishMode


def confirm(
    update: Update, increment: Increment, *, published: int | None, limit: int
) -> Update | Publish:
    """The update, or the whole file where that is smaller, or the only way.

    Args:
        published: bytes of the file that was last published whole, if that is known.
        limit: bytes that a payload may have.
    """
    size = _mb(increment.extract.size)
    if increment.extract.size > limit:
        problem = f"the update of {size} exceeds the limit of {_mb(limit)} for payloads"
        return _in_full(update, problem)
    if published is not None and increment.extract.size > published:
        problem = f"the update of {size} is larger than the whole file of {_mb(published)}"
        return _in_full(update, problem)
    whole = {name: each.whole for name, each in increment.tables.items()}
    return replace(update, tables=whole, reason=_in_words(update, increment))


def _in_full(update: Update, problem: str) -> Publish:
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

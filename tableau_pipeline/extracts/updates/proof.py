"""Prove that what a delta leaves alone is published already."""

from tableauhyperapi import Connection

from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.extracts.desired import fingerprint, row_count
from tableau_pipeline.extracts.updates.affected_rows import Affected, affected
from tableau_pipeline.extracts.updates.change import Change, NotProvedError, TableVersion


def prove(connection: Connection, change: Change, found: Affected) -> tuple[int, int, int]:
    """Check that the unaffected rows are the same in the published and the desired content.

    Returns:
        how many affected rows are published, how many are desired, and how many of the desired ones
        are in shared files.

    Raises:
        NotProvedError: they are not.
    """
    new, old = change.new, change.published
    here = affected(found.keys, "source")
    # If all columns were compared, numbers prove it: where each side leaves as many rows alone as
    # there are equal pairs, every such row is in a pair, for a key identifies it.
    measure = fingerprint if found.equal is None else row_count

    def of_shared(version: TableVersion) -> Fingerprint:
        # This reads the columns that the key tables name, and the hash if it is stored.
        measure = fingerprint if version.content.is_additive else row_count
        return measure(connection, f"{version.rows(change.shared)} source WHERE {here}")

    def divided(version: TableVersion, shared: Fingerprint) -> tuple[int, Fingerprint]:
        """Return the number of affected rows, and the fingerprint of the others."""
        rows = f"{version.rows(change.unshared(version))} source"
        affected_here = measure(connection, f"{rows} WHERE {here}")
        if version.content.is_additive:
            left = version.content - shared
        else:
            # Shared files hold the same rows, so the others prove as much as all.
            left = measure(connection, rows)
        return affected_here.rows + shared.rows, left - affected_here

    shared = of_shared(new)
    inserted, left = divided(new, shared)
    deleted, published = divided(old, shared if new.cutoff == old.cutoff else of_shared(old))
    if published != left:
        raise NotProvedError(
            "rows changed beyond those that its refresh policy affects: "
            + (
                f"the {left.rows:,} rows that it leaves alone are not those that are published"
                if published.rows == left.rows
                else f"{left.rows:,} rows are left alone where {published.rows:,} are published"
            )
        )
    if found.equal not in (None, left.rows):
        raise NotProvedError(
            "rows changed beyond those that its refresh policy affects: of the "
            f"{left.rows:,} rows that it leaves alone, {found.equal:,} equal published ones"
        )
    return deleted, inserted, shared.rows

from tableau_sandbox.identity import new_luid
from tableau_sandbox.store.database import Database


def open_upload(database: Database, *, site: str, user: str, expires_at: float) -> str:
    """Open an upload session; return its identifier, in the form of real servers."""
    luid = f"1:{new_luid().replace('-', '')}-0:0"
    database.change(
        "INSERT INTO upload (luid, site, user, expires_at) VALUES (?, ?, ?, ?)",
        luid,
        site,
        user,
        expires_at,
    )
    return luid


def upload_is_open(database: Database, luid: str, *, site: str, user: str, now: float) -> bool:
    """Whether this user may append to the session, or publish it."""
    row = database.row(
        "SELECT 1 FROM upload WHERE luid = ? AND site = ? AND user = ? AND expires_at > ?",
        luid,
        site,
        user,
        now,
    )
    return row is not None


def blocks(database: Database, luid: str) -> dict[int, str]:
    """Return the files of the blocks so far, by sequence number and in order."""
    rows = database.rows(
        "SELECT sequence, file FROM upload_block WHERE upload = ? ORDER BY sequence", luid
    )
    return {row["sequence"]: row["file"] for row in rows}


def uploaded_bytes(database: Database, luid: str) -> int:
    """Return the size of all blocks so far, in bytes."""
    rows = database.rows("SELECT bytes FROM upload_block WHERE upload = ?", luid)
    return sum(row["bytes"] for row in rows)


def add_block(database: Database, luid: str, *, sequence: int, file: str, size: int) -> None:
    """Record a block of `size` bytes."""
    database.change(
        "INSERT INTO upload_block (upload, sequence, file, bytes) VALUES (?, ?, ?, ?)",
        luid,
        sequence,
        file,
        size,
    )


def close_upload(database: Database, luid: str) -> None:
    """End an upload session, so that it cannot be used again."""
    database.change("DELETE FROM upload WHERE luid = ?", luid)


def forget_expired_uploads(database: Database, *, now: float) -> None:
    """Remove the expired sessions."""
    database.change("DELETE FROM upload WHERE expires_at <= ?", now)


def block_files(database: Database) -> list[str]:
    """Return the names of the files of all blocks."""
    return [row["file"] for row in database.rows("SELECT file FROM upload_block")]

"""Create, hash and compare identifiers and secrets."""

import hashlib
import hmac
import secrets
import uuid
from functools import lru_cache

_SEEDS = uuid.UUID("5f0ff1ce-7ab1-4ea0-8a5e-5a4db0c50001")


def new_luid() -> str:
    """Return a new locally unique identifier."""
    return str(uuid.uuid4())


def seeded_luid(*path: str) -> str:
    """Return the identifier of an initial object; all sandboxes use the same identifier."""
    return str(uuid.uuid5(_SEEDS, "/".join(path)))


def new_token(site_luid: str) -> str:
    """Return a new session token, in the three-part form of real servers."""
    return f"{secrets.token_urlsafe(16)}|{secrets.token_urlsafe(24)}|{site_luid}"


def digest(token: str) -> str:
    """Return the stored form of a token. The token is random, so it needs no salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def hash_secret(secret: str) -> str:
    """Return the stored form of a password, or of a personal access token's secret."""
    salt = secrets.token_bytes(16)
    return f"{salt.hex()}:{_scrypt(secret, salt).hex()}"


def secret_matches(secret: str, stored: str) -> bool:
    """Whether `stored` is the result of `hash_secret` for `secret`."""
    salt, hashed = (bytes.fromhex(part) for part in stored.split(":"))
    return hmac.compare_digest(_scrypt(secret, salt), hashed)


# Cache the result: clients sign in with the same few secrets again and again.
@lru_cache
def _scrypt(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=salt, n=2**12, r=8, p=1)

import shutil
from pathlib import Path

_FOLDER, _TRUSTED = "tls", "certificate.pem"
# The key of the server and its certificate, which that of `certificate_path` has signed.
_SERVER = "server.pem"


def certificate_path(data_dir: Path) -> Path:
    """Return the path of the certificate that clients of a sandbox have to trust."""
    return data_dir / _FOLDER / _TRUSTED


def ensure_certificate(data_dir: Path) -> Path:
    """Return the key and the certificate of a sandbox for 127.0.0.1 and localhost, in one file.

    They stay across restarts, so that clients need to trust them only once.
    """
    folder = data_dir / _FOLDER
    if not (folder / _SERVER).exists():
        # A process that is killed here leaves no half of them in the folder that counts.
        made = data_dir / f"{_FOLDER}.new"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(mode=0o700)
        _make(made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return folder / _SERVER


def _make(folder: Path) -> None:
    # HTTPS alone needs it.
    import trustme

    authority = trustme.CA(organization_name="Tableau sandbox")
    server = authority.issue_cert("localhost", "127.0.0.1", "::1")
    (folder / _SERVER).touch(mode=0o600)
    server.private_key_and_cert_chain_pem.write_to_path(folder / _SERVER)
    (folder / _TRUSTED).write_bytes(authority.cert_pem.bytes())

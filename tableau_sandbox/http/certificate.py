import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=365)
_RENEWED_BEFORE = timedelta(days=30)


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate and its key, both in PEM files."""

    path: Path
    key_path: Path


def certificate_path(data_dir: Path) -> Path:
    """Return the path of the certificate that clients of a sandbox have to trust."""
    return data_dir / "tls" / "certificate.pem"


def ensure_certificate(data_dir: Path) -> Certificate:
    """Return the certificate of a sandbox for 127.0.0.1 and localhost; create it if needed.

    It stays valid across restarts, so that clients need to trust it only once.
    """
    path = certificate_path(data_dir)
    certificate = Certificate(path, path.with_name("key.pem"))
    if not _is_valid(certificate):
        _make(certificate)
    return certificate


def _is_valid(certificate: Certificate) -> bool:
    if not (certificate.path.exists() and certificate.key_path.exists()):
        return False
    try:
        read = x509.load_pem_x509_certificate(certificate.path.read_bytes())
        key = serialization.load_pem_private_key(certificate.key_path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Something else, or a key with a password.
        return False
    # A process that is stopped between the two writes leaves a new key with an old certificate.
    belong_together = key.public_key() == read.public_key()
    return belong_together and read.not_valid_after_utc - _RENEWED_BEFORE > datetime.now(UTC)


def _make(certificate: Certificate) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    certificate.path.parent.mkdir(parents=True, exist_ok=True)
    # A file that exists would keep its mode, which others might be allowed to read.
    certificate.key_path.unlink(missing_ok=True)
    certificate.key_path.touch(mode=0o600)
    certificate.key_path.write_bytes(pem)
    # The certificate is written last and at once, so that its key always exists.
    written = certificate.path.with_suffix(".new")
    written.write_bytes(_signed(key).public_bytes(serialization.Encoding.PEM))
    written.replace(certificate.path)


def _signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tableau sandbox")])
    addresses = [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ("127.0.0.1", "::1")]
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clock of a client may be behind.
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _LIFETIME)
    )
    # Strict clients require all of these extensions.
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    for extension, critical in (
        (x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), False),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_key_usage(), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (key_id, False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id), False),
    ):
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, hashes.SHA256())


def _key_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )

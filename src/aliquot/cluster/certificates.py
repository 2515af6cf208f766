"""The cluster's own certificate authority, and TLS between head and agents.

The authority's key is in the head's data folder and signs nothing but the head's certificate and those of nodes. The
name in the head's certificate is fixed, so a node's certificate cannot stand for the head. Times begin a day early,
because clocks may be wrong.
"""

import datetime as dt
import ssl
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aliquot.core.errors import InputError
from aliquot.live.store.data_directory import write_private

HEAD_NAME = "head.aliquot.internal"
_NODE_SUFFIX = ".node.aliquot.internal"
_YEARS = dt.timedelta(days=3650)
_DAY = dt.timedelta(days=1)
_AUTHORITY, _AUTHORITY_KEY, _CERTIFICATE, _KEY = "authority.pem", "authority.key", "own.pem", "own.key"


class KeyFiles(NamedTuple):
    """The files of one side: its certificate, its key, and the certificate of the authority."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / _AUTHORITY

    @property
    def certificate(self) -> Path:
        return self.folder / _CERTIFICATE

    @property
    def key(self) -> Path:
        return self.folder / _KEY

    @property
    def complete(self) -> bool:
        """Return whether all files are there."""
        return all(path.exists() for path in (self.authority, self.certificate, self.key))


class Authority:
    """The cluster's certificate authority on the head. It is made with the first start."""

    def __init__(self, folder: Path) -> None:
        """Blocks. Raises `InputError` if the files are damaged."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.files = KeyFiles(folder)
        key_file = folder / _AUTHORITY_KEY
        try:
            if not key_file.exists() or not self.files.authority.exists():
                _make_authority(key_file, self.files.authority)
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
            self._certificate = x509.load_pem_x509_certificate(self.files.authority.read_bytes())
        except (ValueError, OSError) as error:
            raise InputError(f"--data: the cluster's authority in {folder} cannot be read: {error}") from error
        assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101 - as it was made
        self._key = key
        if not self.files.complete:
            own, request = make_request(HEAD_NAME)
            write_private(self.files.key, own.decode())
            write_private(self.files.certificate, self._sign(request, HEAD_NAME).decode())

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def digest(self) -> bytes:
        return digest_of(self.pem)

    def sign_node(self, node: str, request: bytes) -> bytes:
        """Return the certificate of a node in PEM. Raises `ValueError` if the request is none."""
        return self._sign(request, node + _NODE_SUFFIX)

    def _sign(self, request: bytes, name: str) -> bytes:
        try:
            parsed = x509.load_pem_x509_csr(request)
            if not parsed.is_signature_valid:
                raise ValueError("the signing request is not signed by its key")
        except InvalidSignature as error:
            raise ValueError(str(error)) from error
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(self._certificate.subject)
            .public_key(parsed.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _YEARS - _DAY)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)


def _make_authority(key_file: Path, file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    name = _named("Aliquot cluster")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 2 * _YEARS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, _key_pem(key).decode())
    write_private(file, made.public_bytes(serialization.Encoding.PEM).decode())


def make_request(name: str) -> tuple[bytes, bytes]:
    """Return a new key and its signing request, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(_named(name)).sign(key, hashes.SHA256())
    return _key_pem(key), request.public_bytes(serialization.Encoding.PEM)


def digest_of(pem: bytes) -> bytes:
    """Return the digest by which a token names an authority. Raises `ValueError` if it is no certificate."""
    return x509.load_pem_x509_certificate(pem).fingerprint(hashes.SHA256())


def fingerprint_of(pem: bytes) -> str:
    """Return the digest by which the head knows a node's certificate."""
    return digest_of(pem).hex()


def fingerprint_of_der(certificate: bytes) -> str:
    return sha256(certificate).hexdigest()


def head_context(files: KeyFiles) -> ssl.SSLContext:
    """Return the head's side of TLS. Peers without a certificate can do nothing but join."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def agent_context(files: KeyFiles) -> ssl.SSLContext:
    """Return the agent's side of TLS, with its certificate if it has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(files.authority)
    if files.complete:
        context.load_cert_chain(files.certificate, files.key)
    return context


def unverified_context() -> ssl.SSLContext:
    """Return TLS to a head whose authority is not known yet. Nothing secret may be sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

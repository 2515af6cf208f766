"""Join tokens: what the operator gives to a machine so that it can become a node.

A token has the digest of the cluster's certificate authority, by which the agent recognises the head before it says
anything, and a secret, by which the head recognises the agent. Without TLS the digest is empty.
"""

import base64
import binascii
import hmac
from hashlib import sha256

from msgspec import Struct

from aliquot.core.errors import InputError

_PREFIX = "alq1."
SECRET_BYTES = 24
_DIGEST_BYTES = 32


class JoinToken(Struct, frozen=True):
    """The digest of the authority's certificate, or nothing without TLS, and the secret."""

    authority: bytes
    secret: bytes

    def text(self) -> str:
        """Return the token as text for the command line."""
        return _PREFIX + base64.urlsafe_b64encode(self.secret + self.authority).decode().rstrip("=")


def parse_token(text: str) -> JoinToken:
    """Parse a token. Raises `InputError`."""
    body = text.strip().removeprefix(_PREFIX)
    try:
        data = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except (binascii.Error, ValueError):
        data = b""
    if not text.strip().startswith(_PREFIX) or len(data) not in (SECRET_BYTES, SECRET_BYTES + _DIGEST_BYTES):
        raise InputError("--token: this is no join token; the head prints one with `aliquot node token`")
    return JoinToken(data[SECRET_BYTES:], data[:SECRET_BYTES])


def proof_of(secret: bytes, nonce: bytes, *parts: str) -> bytes:
    """Return the proof that one knows the secret, for this nonce and this purpose."""
    text = b"\0".join([nonce, *(part.encode() for part in parts)])
    return hmac.digest(secret, text, sha256)


def node_secret(secret: bytes, node: str, identity: str) -> bytes:
    """Return the secret of one node, which outlives that of the token with which it joined."""
    return proof_of(secret, b"", "node", node, identity)


def proves(proof: bytes, secret: bytes, nonce: bytes, *parts: str) -> bool:
    """Return whether the proof is right."""
    return hmac.compare_digest(proof, proof_of(secret, nonce, *parts))

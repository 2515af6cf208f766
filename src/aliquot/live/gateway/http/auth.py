"""Who calls: Basic credentials to the namespace they open, remembered by a digest of the header.

Secrets are compared in constant time, an unknown key costs as much as a wrong secret, and no secret is kept: what is
remembered is keyed by a digest whose key is this process's own.
"""

import binascii
import hashlib
import hmac
import os
from base64 import b64decode

from aliquot.live.catalogue.catalogue import Catalogue, digest_of
from aliquot.live.gateway.http.refusal import UNAUTHENTICATED, Refusal, unauthenticated
from aliquot.live.gateway.http.target import InvocationTarget
from aliquot.live.invocations.rate_limits import RateLimiter, RateLimiters
from aliquot.live.store.records import Namespace

_MAX_CACHED_PRINCIPALS = 4096
_MAX_HEADER_BYTES = 1024
_NOBODY = digest_of("")


class Principal:
    """A namespace that calls, with what the gateway remembers for it until the catalogue changes."""

    __slots__ = ("limiter", "name", "namespace", "targets")

    def __init__(self, namespace: Namespace, limiter: RateLimiter) -> None:
        self.namespace = namespace
        self.name = namespace.name
        self.limiter = limiter
        self.targets: dict[bytes, InvocationTarget] = {}  # by raw path: what it invokes


class Auth:
    def __init__(self, catalogue: Catalogue, rate_limiters: RateLimiters) -> None:
        self._catalogue = catalogue
        self._rate_limiters = rate_limiters
        self._salt = os.urandom(32)
        self._generation = -1
        self._remembered: dict[bytes, Principal] = {}
        self._principals: dict[str, Principal] = {}
        # Digests that were remembered for keys that may be forgotten: sandboxes come and go with one each.
        self._of_ephemeral: dict[str, list[bytes]] = {}
        catalogue.on_key_forgotten.append(self._forget)

    def principal(self, header: bytes | None) -> Principal:
        """Raises a 401."""
        if self._generation != self._catalogue.generation:
            self._generation = self._catalogue.generation
            self._remembered.clear()
            self._principals.clear()
            self._of_ephemeral.clear()
        if header is None or len(header) > _MAX_HEADER_BYTES:
            raise unauthenticated()
        digest = hashlib.blake2b(header, digest_size=16, key=self._salt).digest()
        return self._remembered.get(digest) or self._look_up(header, digest)

    def _look_up(self, header: bytes, digest: bytes) -> Principal:
        key_uuid, secret = _credentials(header)
        key = self._catalogue.key(key_uuid)
        namespace = self._catalogue.namespace(key[0]) if key else None
        right = hmac.compare_digest(hashlib.sha256(secret).hexdigest(), key[1] if key else _NOBODY)
        if namespace is None or not right:
            raise unauthenticated()
        found = self._principals.get(namespace.name)
        if found is None:
            found = self._principals[namespace.name] = Principal(namespace, self._rate_limiters.limiter(namespace))
        if len(self._remembered) >= _MAX_CACHED_PRINCIPALS:
            self._remembered.clear()
            self._of_ephemeral.clear()
        self._remembered[digest] = found
        if self._catalogue.is_ephemeral(key_uuid):
            self._of_ephemeral.setdefault(key_uuid, []).append(digest)
        return found

    def _forget(self, key_uuid: str) -> None:
        for digest in self._of_ephemeral.pop(key_uuid, ()):
            self._remembered.pop(digest, None)


def _credentials(header: bytes) -> tuple[str, bytes]:
    """The uuid and the secret. Raises a 401."""
    scheme, _, text = header.partition(b" ")
    if scheme.lower() not in {b"basic", b"bearer"}:  # composer's client says Bearer and means the same
        raise unauthenticated()
    text = text.strip()
    if b":" not in text:
        try:
            text = b64decode(text, validate=True)
        except binascii.Error as error:
            raise unauthenticated() from error
    key_uuid, _, secret = text.partition(b":")
    return key_uuid.decode("latin-1"), secret


class OperatorAuth:
    """The operator's key, as a bearer."""

    def __init__(self, token: str) -> None:
        self._digest = hashlib.sha256(token.encode()).digest() if token else None

    def check(self, header: bytes | None) -> None:
        """Raises a 401. Without a token nobody is the operator."""
        scheme, _, token = (header or b"").partition(b" ")
        given = hashlib.sha256(token.strip()).digest()
        right = self._digest is not None and hmac.compare_digest(given, self._digest)
        if not right or scheme.lower() != b"bearer":
            raise Refusal(401, UNAUTHENTICATED, ((b"www-authenticate", b'Bearer realm="Aliquot operator"'),))

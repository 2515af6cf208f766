"""Authenticate callers: map Basic credentials to a namespace, and cache the result.

Secrets are compared in constant time, and an unknown key costs as much as a wrong secret. No secret is kept: the cache
is keyed by a digest of the header, made with a random key of this process.
"""

import binascii
import hashlib
import hmac
import os
from base64 import b64decode

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.keys import digest_of
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.gateway.http.refusal import UNAUTHENTICATED, Refusal, unauthenticated
from aliquot.live.invocations.metrics import ActionMetrics
from aliquot.live.invocations.objective import declared_limits
from aliquot.live.invocations.parameters import ParameterMerger
from aliquot.live.invocations.rate_limits import RateLimiter, RateLimiters
from aliquot.live.store.operator_token import OperatorToken
from aliquot.live.store.records import Namespace

_MAX_CACHED_PRINCIPALS = 4096
_MAX_HEADER_BYTES = 1024
_UNKNOWN_KEY = digest_of("")  # compared with when there is no such key


class InvocationTarget:
    """A resolved action with its counters and the merger of its parameters."""

    __slots__ = ("limits", "metrics", "parameters", "resolved", "sdk")

    def __init__(self, resolved: ResolvedAction, metrics: ActionMetrics) -> None:
        self.resolved = resolved
        self.metrics = metrics
        # It takes pickled arguments, or as a workflow a container of objects.
        is_function = resolved.action.annotation("sdk") is True and resolved.has_code and not resolved.composite
        self.sdk = is_function or resolved.workflow
        self.parameters = ParameterMerger(resolved)
        self.limits = declared_limits(resolved)


class Principal:
    """A namespace that calls, with the targets that are cached for it until the catalogue changes."""

    __slots__ = ("limiter", "name", "namespace", "targets")

    def __init__(self, namespace: Namespace, limiter: RateLimiter) -> None:
        self.namespace = namespace
        self.name = namespace.name
        self.limiter = limiter
        self.targets: dict[bytes, InvocationTarget] = {}  # by raw path


class Auth:
    """Authenticates the callers of a namespace's endpoints."""

    def __init__(self, catalogue: Catalogue, rate_limiters: RateLimiters) -> None:
        self._catalogue = catalogue
        self._rate_limiters = rate_limiters
        self._salt = os.urandom(32)
        self._generation = -1
        self._cached: dict[bytes, Principal] = {}
        self._principals: dict[str, Principal] = {}
        # Every sandbox has a key that ends with it. These are the cached digests to drop then.
        self._ephemeral_digests: dict[str, list[bytes]] = {}
        catalogue.ephemeral_keys.on_forgotten(self._drop_key)

    def principal(self, header: bytes | None) -> Principal:
        """Return the caller with this `Authorization` header, or raise a 401."""
        if header is None or len(header) > _MAX_HEADER_BYTES:
            raise unauthenticated()
        digest = self.digest(header)
        return self.recall(digest) or self._look_up(header, digest)

    def recall(self, digest: bytes) -> Principal | None:
        """Return the caller of a header with this digest, if the key was checked since the catalogue last changed."""
        if self._generation != self._catalogue.generation:
            self._generation = self._catalogue.generation
            self._cached.clear()
            self._principals.clear()
            self._ephemeral_digests.clear()
        return self._cached.get(digest)

    def digest(self, header: bytes) -> bytes:
        """Return the digest by which the cache knows this header."""
        return hashlib.blake2b(header, digest_size=16, key=self._salt).digest()

    def _look_up(self, header: bytes, digest: bytes) -> Principal:
        key_uuid, secret = _credentials(header)
        key = self._catalogue.key(key_uuid)
        namespace = self._catalogue.namespace(key[0]) if key else None
        right = hmac.compare_digest(hashlib.sha256(secret).hexdigest(), key[1] if key else _UNKNOWN_KEY)
        if namespace is None or not right:
            raise unauthenticated()
        found = self._principals.get(namespace.name)
        if found is None:
            found = self._principals[namespace.name] = Principal(namespace, self._rate_limiters.limiter(namespace))
        if len(self._cached) >= _MAX_CACHED_PRINCIPALS:
            self._cached.clear()
            self._ephemeral_digests.clear()
        self._cached[digest] = found
        if key_uuid in self._catalogue.ephemeral_keys:
            self._ephemeral_digests.setdefault(key_uuid, []).append(digest)
        return found

    def _drop_key(self, key_uuid: str) -> None:
        for digest in self._ephemeral_digests.pop(key_uuid, ()):
            self._cached.pop(digest, None)


def _credentials(header: bytes) -> tuple[str, bytes]:
    """Return the key's uuid and secret, or raise a 401."""
    scheme, _, text = header.partition(b" ")
    if scheme.lower() not in {b"basic", b"bearer"}:  # the client of openwhisk-composer sends the same as Bearer
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
    """Checks the operator's token, which comes as a Bearer token."""

    def __init__(self, token: OperatorToken) -> None:
        self._token = token

    def check(self, header: bytes | None) -> None:
        """Raise a 401 unless the header has the token. An empty token admits no caller."""
        if not self.is_right(header):
            raise Refusal(401, UNAUTHENTICATED, ((b"www-authenticate", b'Bearer realm="Aliquot operator"'),))

    def is_right(self, header: bytes | None) -> bool:
        """Return whether the header has the token."""
        scheme, _, given = (header or b"").partition(b" ")
        right = self._token.matches(given.strip())
        return right and scheme.lower() == b"bearer"

"""Resolve paths below /api/v1/web/ to web actions, and cache the result until the catalogue changes."""

import hashlib
import hmac

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.names import is_name
from aliquot.live.gateway.http.auth import InvocationTarget
from aliquot.live.gateway.http.names import decoded
from aliquot.live.gateway.http.refusal import Refusal, not_found
from aliquot.live.gateway.web.responses import RENDERERS
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.rate_limits import RateLimiters
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import FullName, Namespace

PREFIX = b"/api/v1/web/"
DEFAULT_PACKAGE = "default"
DEFAULT_EXTENSION = ".http"
_MAX_CACHED_TARGETS = 1024
_NAMES = 3  # namespace, package, action


class WebPath:
    """A parsed path: the names, the extension, and the rest behind the action's name."""

    __slots__ = ("extension", "leaf", "namespace", "package", "rest")

    def __init__(self, path: bytes) -> None:
        """Parse a raw path. Raises a 404 if it cannot name an action."""
        segments = path[len(PREFIX) :].split(b"/", _NAMES)
        if len(segments) < _NAMES:
            raise not_found()
        try:
            names = [decoded(segment) for segment in segments[:_NAMES]]
        except Refusal as refusal:
            raise not_found() from refusal
        if not all(map(is_name, names)):
            raise not_found()
        self.namespace, self.package, name = names
        self.leaf, self.extension = split_extension(name)
        self.rest = "/" + segments[_NAMES].decode("latin-1") if len(segments) > _NAMES else ""

    @property
    def full_name(self) -> FullName:
        name = self.leaf if self.package == DEFAULT_PACKAGE else f"{self.package}/{self.leaf}"
        return FullName(self.namespace, name)


def split_extension(name: str) -> tuple[str, str]:
    for extension in RENDERERS:
        if name.endswith(extension):
            return name[: -len(extension)], extension
    return name, DEFAULT_EXTENSION


class WebTarget:
    """A resolved web action, with its owner, its authentication requirement and the form of its response."""

    __slots__ = (
        "_secret",
        "custom_options",
        "extension",
        "limiter",
        "owner",
        "raw",
        "requirement",
        "secured",
        "target",
    )

    def __init__(self, owner: Namespace, target: InvocationTarget, rate_limiters: RateLimiters, extension: str) -> None:
        self.owner = owner
        self.target = target
        self.limiter = rate_limiters.limiter(owner)
        self.extension = extension
        action = target.resolved.action
        self.raw = action.annotation("raw-http") is True
        self.custom_options = action.annotation("web-custom-options") is True
        self.secured = any(pair.key == "require-whisk-auth" for pair in action.annotations)
        self.requirement: object = action.annotation("require-whisk-auth")
        self._secret = _digest(str(self.requirement).encode())

    def admits(self, user: str | None, secret: bytes | None) -> bool:
        """Return whether a caller with this namespace and this `X-Require-Whisk-Auth` header may call it."""
        if not self.secured:
            return True
        match self.requirement:
            case True:
                return user is not None
            case False:
                return True
            case str() | int() | float():
                return secret is not None and hmac.compare_digest(_digest(secret), self._secret)
        return False  # any other value locks the action


def _digest(secret: bytes) -> bytes:
    """Hash a secret. Digests have equal lengths, so comparing them reveals nothing about the secret's length."""
    return hashlib.sha256(secret).digest()


class WebTargets:
    """Resolves web actions, and caches them."""

    def __init__(self, catalogue: Catalogue, rate_limiters: RateLimiters, metrics: Metrics) -> None:
        self._catalogue = catalogue
        self._rate_limiters = rate_limiters
        self._metrics = metrics
        self._generation = -1
        self._cached: dict[tuple[str, str, str, str], WebTarget] = {}

    def of(self, owner: str, name: FullName, extension: str) -> WebTarget:
        """Return the action as `owner` resolves it. The call counts against the owner's limits.

        Raises a 404 for every reason why it cannot be called.
        """
        if self._generation != self._catalogue.generation:
            self._generation = self._catalogue.generation
            self._cached.clear()
        key = (owner, name.namespace, name.name, extension)
        found = self._cached.get(key)
        if found is None:
            if len(self._cached) >= _MAX_CACHED_TARGETS:
                self._cached.clear()
            found = self._cached[key] = self._resolve(owner, name, extension)
        return found

    def _resolve(self, owner: str, name: FullName, extension: str) -> WebTarget:
        namespace = self._catalogue.namespace(owner)
        if namespace is None:
            raise not_found()
        try:
            resolved = self._catalogue.resolve_with_components(owner, name)
        except (NotFoundError, AccessDeniedError) as error:
            raise not_found() from error
        if resolved.action.annotation("web-export") is not True:
            raise not_found()
        target = InvocationTarget(resolved, self._metrics.of_action(owner, resolved.function))
        return WebTarget(namespace, target, self._rate_limiters, extension)

"""Refusals: an HTTP status with an error text, mostly OpenWhisk's own, and the mapping from errors to them."""

from collections.abc import Iterable
from math import ceil
from typing import Any

import msgspec
import structlog

from aliquot.core.admission.records import Refusal as CoreRefusal
from aliquot.core.errors import InputError
from aliquot.live.catalogue.catalogue import NameTakenError, TooManyEntitiesError
from aliquot.live.catalogue.secrets import SecretInUseError, TooManySecretsError
from aliquot.live.datasets.agent_requests import AgentError, AgentLostError
from aliquot.live.datasets.volume_files import VolumeFileError
from aliquot.live.datasets.volumes import TooManyVolumesError, VolumeInUseError, VolumeSizeError
from aliquot.live.invocations.errors import (
    MALFORMED,
    LimitsError,
    NotPromisedError,
    ObjectsRefusedError,
    OverloadedError,
    PayloadError,
    RateLimitError,
)
from aliquot.live.invocations.objective import describe_refusal
from aliquot.live.invocations.sessions.registry import SessionNotFoundError, SessionTooLargeError, TooManySessionsError
from aliquot.live.store.base import LargePageError, StoreError
from aliquot.live.store.errors import (
    ACCESS_DENIED,
    NOT_FOUND,
    AccessDeniedError,
    NotFoundError,
    WrongCollectionError,
)
from aliquot.live.store.kept_bytes import QuotaError

_log = structlog.get_logger(__name__)

EXISTS = "resource already exists"
ELSEWHERE = "Resource by this name exists but is not in this collection."
FORBIDDEN = "The supplied authentication is not authorized to access this resource."
UNAUTHENTICATED = "The supplied authentication is invalid."
INTERNAL = "There was an internal server error."
OVERLOADED = "System is overloaded, try again later."
SLOW = "The request's body did not arrive in time."

CHALLENGE = ((b"www-authenticate", b'Basic realm="OpenWhisk secure realm"'),)
CLOSE = ((b"connection", b"close"),)


class Refusal(Exception):  # noqa: N818 - a response, not an error
    """The response to a request that cannot be granted."""

    def __init__(
        self,
        status: int,
        text: str,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        more: dict[str, Any] | None = None,
    ) -> None:
        """`more` has further fields of the body."""
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers
        self.more = more

    def body(self, transaction: str) -> bytes:
        if self.more is not None:
            return msgspec.json.encode({"error": self.text, "code": transaction, **self.more})
        return error_body(self.text, transaction)


def error_body(text: str, transaction: str) -> bytes:
    """Return the JSON body of an error. `wsk` expects both fields, and takes a 502 with `code` for the platform's."""
    return msgspec.json.encode({"error": text, "code": transaction})


def not_allowed(methods: Iterable[str]) -> Refusal:
    named = ", ".join(methods)
    return Refusal(405, f"HTTP method not allowed, supported methods: {named}", ((b"allow", named.encode()),))


def not_acceptable(content_type: str) -> Refusal:
    return Refusal(406, f"Resource representation is only available with these types:\n{content_type}")


def not_promised(text: str, refusal: CoreRefusal) -> Refusal:
    """Return a 429 with the reason, what would be accepted, and when."""
    described = describe_refusal(refusal)
    retry_s = 0 if refusal.retry_s is None else ceil(refusal.retry_s)
    return Refusal(429, text, ((b"retry-after", b"%d" % max(1, retry_s)),), {"refused": described})


def not_found(resource: str = "") -> Refusal:
    """Return a 404. OpenWhisk names the resource only where it is looked up to check the caller's rights."""
    return Refusal(404, f"The requested resource '{resource}' does not exist." if resource else NOT_FOUND)


def forbidden(resource: str) -> Refusal:
    return Refusal(403, ACCESS_DENIED.format(resource))


def unauthenticated() -> Refusal:
    return Refusal(401, UNAUTHENTICATED, CHALLENGE)


def malformed(why: str) -> Refusal:
    return Refusal(400, MALFORMED + why)


def malformed_query(name: str, why: str) -> Refusal:
    return Refusal(400, f"The query parameter '{name}' was malformed:\n{why}")


def too_large(field: str, size: int, allowed: int) -> Refusal:
    return Refusal(413, f"{field} larger than allowed: {size} > {allowed} bytes.")


def unsupported_media() -> Refusal:
    return Refusal(415, "The request's Content-Type is not supported. Expected:\napplication/json")


# Tried in order: a subclass comes before its base class.
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (InputError, 400),
    (PayloadError, 400),
    (LimitsError, 400),
    (SessionNotFoundError, 404),
    (NameTakenError, 409),
    (SecretInUseError, 409),
    (VolumeInUseError, 409),
    (SessionTooLargeError, 413),
    (VolumeSizeError, 413),
    (RateLimitError, 429),
    (TooManySessionsError, 429),
    (TooManyEntitiesError, 429),
    (TooManySecretsError, 429),
    (TooManyVolumesError, 429),
    (AgentLostError, 503),
    (AgentError, 424),
)


def refusal_for(error: Exception) -> Refusal:
    """Return the response to a request that failed with this error. An unknown error is logged and becomes a 500."""
    if isinstance(error, NotPromisedError):
        return not_promised(str(error), error.refusal)
    if isinstance(error, VolumeFileError | ObjectsRefusedError):
        return Refusal(error.status, str(error))
    return _refusal_for(error)


def _refusal_for(error: Exception) -> Refusal:
    match error:
        case Refusal():
            return error
        case RecursionError():  # msgspec could decode the JSON but cannot encode it: it is too deep
            return malformed("JSON is nested too deeply")
        case WrongCollectionError():
            return Refusal(409, ELSEWHERE)
        case NotFoundError():
            return not_found()
        case AccessDeniedError():
            return forbidden(str(error))
        case OverloadedError():
            return Refusal(503, str(error) or OVERLOADED)
        case StoreError():
            return _store_refusal(error)
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return Refusal(status, str(error))
    _log.error("request failed", exc_info=error)
    return Refusal(500, INTERNAL)


def _store_refusal(error: StoreError) -> Refusal:
    if isinstance(error, QuotaError | LargePageError):
        return Refusal(413, error.public)
    _log.warning("the store fails", why=str(error))
    return Refusal(503, error.public)

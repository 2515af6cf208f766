"""Refusals: an HTTP status with a text that clients know."""

from collections.abc import Iterable

import msgspec

NOT_FOUND = "The requested resource does not exist."
EXISTS = "resource already exists"
ELSEWHERE = "Resource by this name exists but is not in this collection."
FORBIDDEN = "The supplied authentication is not authorized to access this resource."
UNAUTHENTICATED = "The supplied authentication is invalid."
NOT_ALLOWED_PARAMETERS = "Request defines parameters that are not allowed (e.g., reserved properties)."
MALFORMED = "The request content was malformed:\n"
INTERNAL = "There was an internal server error."
OVERLOADED = "System is overloaded, try again later."
SLOW = "The request's body did not arrive in time."

CHALLENGE = ((b"www-authenticate", b'Basic realm="OpenWhisk secure realm"'),)
CLOSE = ((b"connection", b"close"),)


class Refusal(Exception):  # noqa: N818 - it reads as what it says
    """The answer to a request that cannot be granted."""

    def __init__(self, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers

    def body(self, transaction: str) -> bytes:
        return error_body(self.text, transaction)


def error_body(text: str, transaction: str) -> bytes:
    """For wsk, which wants both, and takes a 502 with `code` for the platform's own."""
    return msgspec.json.encode({"error": text, "code": transaction})


def not_allowed(methods: Iterable[str]) -> Refusal:
    named = ", ".join(methods)
    return Refusal(405, f"HTTP method not allowed, supported methods: {named}", ((b"allow", named.encode()),))


def not_found() -> Refusal:
    return Refusal(404, NOT_FOUND)


def forbidden(resource: str) -> Refusal:
    return Refusal(403, f"The supplied authentication is not authorized to access '{resource}'.")


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

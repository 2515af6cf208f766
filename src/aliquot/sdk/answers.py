"""Interpret the platform's replies: a value, the function's own exception, or an error that says what to do."""

from collections.abc import Mapping
from typing import Any

from aliquot.sdk.errors import (
    BusyError,
    FunctionError,
    KeyRefusedError,
    NotFoundError,
    PlatformError,
    Refused,
    RefusedError,
    RemoteError,
    SdkError,
)
from aliquot.sdk.wire import PICKLE, HttpReply

STATUS = "x-aliquot-status"
FAILURE = "x-aliquot-failure"
ACTIVATION = "x-openwhisk-activation-id"
OPENWHISK_NOT_FOUND = "The requested resource does not exist."
OPENWHISK_WRONG_LENGTH = "Activation id length is "


def check(reply: HttpReply, what: str) -> HttpReply:
    """Return a reply below status 400. Raise the error that any other one means; `what` names the requested thing."""
    if reply.status < 400:  # noqa: PLR2004 - HTTP's own line
        return reply
    raise error_of(reply, what)


def error_of(reply: HttpReply, what: str) -> SdkError:
    """Return the error that the status of a reply means."""
    body = reply.json()
    body = body if isinstance(body, dict) else {}
    text = _about(what, _text(body) or f"HTTP status {reply.status}")
    transaction = str(body.get("code", ""))
    if isinstance(body.get("refused"), dict):
        refused = body["refused"]
        return Refused(f"{text}{_offered(refused)}", refused, status=reply.status, transaction=transaction)
    match reply.status:
        case 401:
            return KeyRefusedError(
                f"{what}: the platform refuses the key: {_text(body)} "
                "Is it of this platform? `aliquot namespace rotate-key NAME` makes a new one"
            )
        case 404:
            return NotFoundError(text)
        case 429 | 503:
            return BusyError(text, status=reply.status, transaction=transaction)
        case status if status < 500:  # noqa: PLR2004 - HTTP's own line
            return RefusedError(text, status=status, transaction=transaction)
    return PlatformError(text, activation_id=reply.headers.get(ACTIVATION, ""))


def _about(what: str, text: str) -> str:
    """Put the name of the requested thing before a text, unless the text begins with it."""
    if text == OPENWHISK_NOT_FOUND:
        return f"{what}: it does not exist"
    if text.startswith(OPENWHISK_WRONG_LENGTH):
        return f"{what}: this is not an id, which has 32 hexadecimal digits"
    return text if text.startswith((f"{what} ", f"{what}:")) else f"{what}: {text}"


def _offered(refused: Mapping[str, Any]) -> str:
    """Return what would be accepted instead, for the error's text."""
    offer = refused.get("offer") or {}
    parts = [f"deadline {offer['deadline_ms']:g} ms"] if "deadline_ms" in offer else []
    parts += [f"cost {offer['cost']:g}"] if "cost" in offer else []
    later = f"; try again in {refused['retry_ms']:g} ms" if refused.get("retry_ms") is not None else ""
    return (f"; now it would be accepted with {' and '.join(parts)}" if parts else "") + later


def is_final(reply: HttpReply) -> bool:
    """Return whether the reply has the outcome of a call. Otherwise it is a refusal, or the call still runs."""
    return STATUS in reply.headers


def is_pickled(reply: HttpReply) -> bool:
    return reply.headers.get("content-type", "").startswith(PICKLE)


def failure_of(reply: HttpReply, what: str, activation_id: str) -> FunctionError:
    """Return the error of a final reply that is not pickled: the function or the platform failed."""
    body = reply.json()
    body = body if isinstance(body, dict) else {}
    text = reply.headers.get(FAILURE) or _text(body) or "it failed and did not say why"
    text = f"{what}: {text}"
    if activation_id:
        text += f"; its logs: aliquot logs {activation_id}"
    kinds = {"1": RemoteError, "3": PlatformError}
    return kinds.get(reply.headers.get(STATUS, ""), FunctionError)(text, activation_id=activation_id)


def _text(body: Mapping[str, Any]) -> str:
    """Return the error text of an error body, a bare result, or a record."""
    response = body.get("response")
    result = response.get("result") if isinstance(response, dict) else body.get("result")
    error = result.get("error") if isinstance(result, dict) else body.get("error")
    if error is None:
        return ""
    return error if isinstance(error, str) else str(error)

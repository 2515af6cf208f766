"""Turn an action's result into an HTTP response, by the extension in the path. Pure.

A result can be any JSON. It is never the cause of a 500, and every header in it is checked here.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import Raw

from aliquot.live.gateway.entities.actions import is_base64
from aliquot.live.gateway.http.names import CONSOLE_COOKIE
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.responses import JSON, Headers
from aliquot.live.gateway.web import media
from aliquot.live.node.base import Outcome, Status

NOT_READY = "Response not yet ready."
FAILED = "There was an error processing your request."
NO_PROPERTY = "Response does not include requested property."
UNKNOWN_TYPE = "Response did not specify a known content-type."
WRONG_TYPE = "Response type in header did not match generated content type."

_NAME = re.compile(media.TOKEN)
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_WHOLE = re.compile(r"[+-]?\d{1,9}")
# Headers that an action cannot set: those of a connection, the gateway's own, and those that affect the whole host.
_RESERVED_HEADERS = frozenset([
    "connection", "content-length", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade", "x-openwhisk-activation-id", "x-request-id",
    "alt-svc", "clear-site-data", "nel", "public-key-pins", "report-to", "service-worker-allowed",
    "strict-transport-security",
])  # fmt: skip
_MAX_HEADER_BYTES = 65_536  # checking them blocks the event loop, and no client reads more
_BODILESS = frozenset([204, 205, 304])  # HTTP allows no body with these
_object = msgspec.json.Decoder(dict[str, Raw])


class WebResponse(NamedTuple):
    """The HTTP response of a web action."""

    status: int
    headers: Headers
    body: bytes | memoryview


def web_response(outcome: Outcome, extension: str) -> WebResponse:
    """Return the response for an outcome. Raises a `Refusal` if the result does not fit the extension."""
    if outcome.status not in {Status.SUCCESS, Status.APPLICATION_ERROR}:
        raise Refusal(400, FAILED)
    if extension == ".json" and isinstance(outcome.result, memoryview) and outcome.status is Status.SUCCESS:
        return WebResponse(
            200, (JSON,), outcome.result
        )  # not copied: it is large, and a result is always an object or an array
    try:
        result = bytes(outcome.result)
        if outcome.status is Status.APPLICATION_ERROR:
            projected = _object.decode(result).get("error")
            if projected is None:
                raise Refusal(404, NO_PROPERTY)
            result = bytes(projected)
        return RENDERERS[extension](result.strip())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, FAILED) from error


def _as_json(result: bytes) -> WebResponse:
    if result[:1] not in (b"{", b"["):
        raise _invalid(media.JSON)
    return _response(200, media.JSON, result)


def _as_html(result: bytes) -> WebResponse:
    return _response(200, "text/html; charset=UTF-8", _string(result, "html", media.HTML))


def _as_svg(result: bytes) -> WebResponse:
    return _response(200, media.SVG, _string(result, "svg", media.SVG))


def _as_text(result: bytes) -> WebResponse:
    found = _projected(result, "text")
    if found is None:
        raise Refusal(404, NO_PROPERTY)
    first = found[:1]
    if first in (b"{", b"["):
        found = msgspec.json.format(found, indent=2)
    elif first == b'"':
        found = _text(found).encode()
    return _response(200, "text/plain; charset=UTF-8", found)


def _string(result: bytes, name: str, kind: str) -> bytes:
    found = _projected(result, name)
    if found is None or found[:1] != b'"':
        raise _invalid(kind)
    return _text(found).encode()


def _projected(result: bytes, name: str) -> bytes | None:
    """Return an object's field `body` or the one with the extension's name, and any other result as it is."""
    if result[:1] != b"{":
        return result
    fields = _object.decode(result)
    found = fields.get("body", fields.get(name))
    return None if found is None else bytes(found).strip()


def _as_http(result: bytes) -> WebResponse:
    if result[:1] != b"{":
        raise _invalid("message/http")
    fields = _object.decode(result)
    headers, content_type = _headers(fields.get("headers"))
    status = _status(fields.get("statusCode"))
    body = bytes(fields.get("body", b"null")).strip()
    if body in (b"null", b'""'):
        return WebResponse(status or 204, headers, b"")
    status = status or 200
    if body[:1] == b'"':
        kind, content = _string_body(_text(body), content_type)
    else:
        kind, content = _json_body(body, content_type)
    if status in _BODILESS:
        return WebResponse(status, headers, b"")
    made = _response(status, kind, content)
    return made._replace(headers=(*made.headers, *headers))


def _string_body(text: str, content_type: str | None) -> tuple[str, bytes]:
    kind = media.parse(media.HTML if content_type is None else content_type)
    if kind is None:
        raise Refusal(400, UNKNOWN_TYPE)
    if kind.is_text or kind.is_json:
        # Actions written for early versions of OpenWhisk return JSON in base64.
        encoded = kind.is_json and is_base64(text)
        return kind.with_charset(), _decoded(text) if encoded else text.encode()
    return str(kind), _decoded(text)


def _json_body(body: bytes, content_type: str | None) -> tuple[str, bytes]:
    kind = media.parse(media.JSON if content_type is None else content_type)
    if kind is None or not kind.is_json:
        raise Refusal(400, WRONG_TYPE)
    return str(kind), body


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal(400, WRONG_TYPE) from error


def _status(raw: Raw | None) -> int | None:
    if raw is None:
        return None
    value = msgspec.json.decode(raw)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in range(200, 600):
        raise _invalid("message/http")
    return int(value)


def _headers(raw: Raw | None) -> tuple[Headers, str | None]:
    """Return the headers that an action may set, and separately the content type."""
    if raw is None:
        return (), None
    given = msgspec.json.decode(raw) if len(bytes(raw)) <= _MAX_HEADER_BYTES else None
    if not isinstance(given, dict):
        raise _invalid("message/http")
    content_type: str | None = None
    found: list[tuple[bytes, bytes]] = []
    for name, value in given.items():
        key = name.lower()
        if not _NAME.fullmatch(name):
            raise _invalid("message/http")
        for text in _values(value):
            if key == "content-type":
                content_type = text if content_type is None else content_type
            elif key not in _RESERVED_HEADERS and not (key == "set-cookie" and _is_of_console(text)):
                found.append((key.encode(), _encoded(text)))
    return tuple(found), content_type


def _is_of_console(cookie: str) -> bool:
    """Return whether a cookie would replace that of the console, or look like it: browsers send it to all ports."""
    return cookie.lstrip("= \t").partition("=")[0].strip() == CONSOLE_COOKIE


def _values(value: object) -> list[str]:
    match value:
        case str():
            texts = [value]
        case bool():
            texts = ["true" if value else "false"]
        case int() | float():
            texts = [str(value)]
        case list():
            return [text for inner in value for text in _values(inner)]
        case _:
            raise _invalid("message/http")
    if not _HEADER_VALUE.fullmatch(texts[0]):  # a line end would start another header or response
        raise _invalid("message/http")
    return texts


def _encoded(text: str) -> bytes:
    text = text.strip(" \t")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _text(raw: bytes) -> str:
    text: str = msgspec.json.decode(raw, type=str)
    return text


def _response(status: int, kind: str, body: bytes) -> WebResponse:
    return WebResponse(status, ((b"content-type", kind.encode("latin-1")),), body)


def _invalid(kind: str) -> Refusal:
    return Refusal(400, f"Response is not valid '{kind}'.")


RENDERERS: dict[str, Callable[[bytes], WebResponse]] = {
    ".http": _as_http,
    ".json": _as_json,
    ".html": _as_html,
    ".svg": _as_svg,
    ".text": _as_text,
}

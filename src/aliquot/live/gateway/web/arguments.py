"""Turn a web request into the action's arguments. Pure: the result depends on the request only."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw, Struct

from aliquot.core.units import MIB
from aliquot.live.gateway.http.asgi import headers_of
from aliquot.live.gateway.http.refusal import Refusal, too_large
from aliquot.live.gateway.web import media
from aliquot.live.invocations.errors import NOT_ALLOWED_PARAMETERS, malformed_payload
from aliquot.live.invocations.parameters import read_object

METHOD, HEADERS, PATH, USER, QUERY, BODY = (
    "__ow_method", "__ow_headers", "__ow_path", "__ow_user", "__ow_query", "__ow_body",
)  # fmt: skip
RESERVED = frozenset([METHOD, HEADERS, PATH, USER, QUERY, BODY])
_MAX_FIELDS = 1000
_MAX_FORM_BYTES = MIB  # decoding a form blocks the event loop
_any = msgspec.json.Decoder(Raw)


class WebRequest(Struct, frozen=True):
    """A complete request for a web action."""

    method: str
    headers: tuple[tuple[bytes, bytes], ...]  # names in lower case
    path: str  # the part behind the action's name, not decoded
    query: bytes = b""  # not decoded
    body: bytes = b""
    content_type: bytes | None = None
    user: str | None = None  # the namespace of the caller's key, if it has a valid one
    named: Mapping[str, str] = {}  # parts of the path that an API route names


def arguments(request: WebRequest, *, raw: bool, final: frozenset[str]) -> dict[str, object]:
    """Return the arguments that override the action's own parameters. Raises a `Refusal`.

    Parameters in `final` may not be overridden. `raw` actions get the query and the body undecoded.
    """
    about: dict[str, object] = {
        METHOD: request.method.lower(),
        HEADERS: headers_of(request.headers),
        PATH: request.path,
    }
    if request.user is not None:
        about[USER] = request.user
    if raw:
        about[QUERY] = request.query.decode("utf-8", "replace")
        about[BODY] = _opaque(request) if request.body else ""
        return about
    given: dict[str, object] = dict(_pairs(request.query))
    body = _read_body(request)
    if isinstance(body, dict):
        given |= body
    given |= request.named
    if not (RESERVED | final).isdisjoint(given):
        raise Refusal(400, NOT_ALLOWED_PARAMETERS)
    if body is not None and not isinstance(body, dict):
        about[BODY] = body
    return about | given


def _pairs(encoded: bytes) -> Iterable[tuple[str, str]]:
    """Decode a query or a form. The last value of a repeated name counts."""
    if not encoded:
        return ()
    try:
        return parse_qsl(
            encoded.decode("utf-8", "replace"), keep_blank_values=True, errors="replace", max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:
        raise Refusal(400, f"The request has more than {_MAX_FIELDS} parameters.") from error


def _read_body(request: WebRequest) -> object:
    """Decode the body. An object has further arguments, any other value becomes `__ow_body`, None means no body."""
    if not request.body:
        return None
    kind = _kind(request)
    if kind is not None and kind.is_json:
        return _read_json(request.body)
    if kind is not None and kind.name == media.FORM:
        if len(request.body) > _MAX_FORM_BYTES:
            raise too_large("Request", len(request.body), _MAX_FORM_BYTES)
        return dict(_pairs(request.body))
    return _opaque(request)


def _read_json(body: bytes) -> object:
    if body.lstrip()[:1] == b"{":
        return read_object(body)
    try:
        body.decode()  # the decoder does not check the UTF-8 of values that it skips
        return _any.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed_payload(str(error)) from error
    except RecursionError as error:
        raise malformed_payload("JSON is nested too deeply") from error


def _opaque(request: WebRequest) -> str:
    """Return text as it is, and everything else in base64. OpenWhisk encodes JSON, too."""
    kind = _kind(request)
    if kind is not None and kind.is_text and kind.name != media.JSON:
        return request.body.decode("utf-8", "replace")
    return b64encode(request.body).decode()


def _kind(request: WebRequest) -> media.MediaType | None:
    return media.parse(request.content_type.decode("latin-1")) if request.content_type else None

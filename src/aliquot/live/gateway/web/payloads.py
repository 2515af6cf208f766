"""Build the payload of a web action: its own parameters, overridden by the request's arguments."""

import re

import msgspec

from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.bodies.large import put_before
from aliquot.live.gateway.http.refusal import Refusal, malformed
from aliquot.live.gateway.web import media
from aliquot.live.gateway.web.arguments import BODY, RESERVED, WebRequest, arguments
from aliquot.live.gateway.web.target import WebTarget
from aliquot.live.invocations.errors import NOT_ALLOWED_PARAMETERS

_OBJECT = re.compile(rb"[ \t\r\n]*\{")
_encode = msgspec.json.encode


async def payload_of(
    request: WebRequest, body: bytes | memoryview, target: WebTarget, json_checker: JsonChecker, payer: str
) -> bytes | memoryview:
    """Return the payload for a request, which comes without its body. `payer` is charged for it. Raises a `Refusal`."""
    defaults = target.target.parameters.defaults or {}
    final = target.target.parameters.final
    if isinstance(body, memoryview) and not target.raw and media.is_json(request.content_type):
        overridable = {**defaults, **arguments(request, raw=False, final=final)}
        return await _merge_large(overridable, body, RESERVED | final | request.named.keys(), json_checker, payer)
    whole = msgspec.structs.replace(request, body=bytes(body))
    return _encode({**defaults, **arguments(whole, raw=target.raw, final=final)})


async def _merge_large(
    overridable: dict[str, object], body: memoryview, refused: frozenset[str], json_checker: JsonChecker, payer: str
) -> bytes | memoryview:
    """Merge a large JSON body without decoding it here: another process checks it and finds the keys that matter."""
    if not _OBJECT.match(body):
        checked = await json_checker.check(body, payer)
        if checked.why is not None:
            raise malformed(checked.why)
        return b"".join((_encode(overridable)[:-1], b',"%b":' % BODY.encode(), body, b"}"))
    checked = await json_checker.check(body, payer, is_object=True, names=tuple(refused | overridable.keys()))
    if checked.why is not None:
        raise malformed(checked.why)
    if not refused.isdisjoint(checked.names):
        raise Refusal(400, NOT_ALLOWED_PARAMETERS)
    missing = {name: value for name, value in overridable.items() if name not in checked.names}
    return put_before(_encode(missing)[:-1] + (b"" if checked.is_empty else b","), body, checked.inside)

"""Values between a sandbox and its platform: large buffers go by shared memory, and over plain HTTP in the body."""

from aliquot.runtime import values
from aliquot.sdk.inside import host
from aliquot.sdk.portable import dump, dump_apart
from aliquot.sdk.server import Server
from aliquot.sdk.wire import Apart, Reply, Request

_TYPE = "Content-Type"
_PARCEL = "; parcel="


def to_send(request: Request, server: Server) -> Request:
    """With its body as it goes over the wire."""
    body = request.body
    if not isinstance(body, Apart):
        return request
    if not host.shares(server) or host.side is None:
        return request._replace(body=dump(*body))
    pickled, buffers = dump_apart(*body)
    kind = f"{request.headers[_TYPE]}; desk={host.desk}"
    if buffers:
        try:
            kind += f"{_PARCEL}{host.side.put(buffers)}"
        except Exception:  # noqa: BLE001 - there is no room, or nobody to ask: as a plain body, then
            pickled = values.seal_up(pickled, [len(buffer) for buffer in buffers]) + b"".join(buffers)
        else:
            pickled = values.seal_up(pickled, [len(buffer) for buffer in buffers])
    return request._replace(body=pickled, headers={**request.headers, _TYPE: kind})


def received(reply: Reply) -> Reply:
    """With the parcel that it announces, if it does."""
    _, found, number = reply.headers.get("content-type", "").partition(_PARCEL)
    if not found or host.side is None:
        return reply
    return reply._replace(memory=host.side.take(int(number)))

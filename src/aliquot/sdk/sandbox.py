"""The SDK inside a sandbox: its control channel and its group, and large values that go through shared memory.

The launcher fills in the `sandbox` object (`aliquot.runtime.sdk_support`). Outside a sandbox it stays empty, and every
call is an HTTP request with a plain body.
"""

import os
from typing import TYPE_CHECKING

from aliquot.runtime import values
from aliquot.sdk.portable import dump, dump_out_of_band
from aliquot.sdk.server import ServerAddress
from aliquot.sdk.wire import DeferredPickle, HttpReply, HttpRequest

if TYPE_CHECKING:
    from aliquot.runtime.control_channel import ControlChannel
    from aliquot.runtime.group import FunctionGroup

_TYPE = "Content-Type"
_BUFFER = "; buffer="  # before the number of a shared buffer


class SandboxContext:
    """The control channel and the group of this sandbox. Empty outside a sandbox."""

    def __init__(self) -> None:
        self.channel: ControlChannel | None = None
        self.token = ""  # by which the gateway knows the control channel
        self.group: FunctionGroup | None = None

    def shares_memory_with(self, server: ServerAddress) -> bool:
        """Return whether a platform is the one that runs this sandbox, so that values can go through shared memory."""
        if self.channel is None or not self.token:  # without a token the gateway is on another machine
            return False
        return server.url == os.environ.get("__OW_API_HOST", "").rstrip("/")


sandbox = SandboxContext()


def encode_request(request: HttpRequest, server: ServerAddress) -> HttpRequest:
    """Pickle a deferred body. Inside a sandbox of the platform its large buffers go into a shared buffer."""
    body = request.body
    if not isinstance(body, DeferredPickle):
        return request
    if not sandbox.shares_memory_with(server) or sandbox.channel is None:
        return request._replace(body=dump(*body))
    pickled, buffers = dump_out_of_band(*body)
    kind = f"{request.headers[_TYPE]}; sandbox={sandbox.token}"
    if buffers:
        envelope = values.seal_envelope(pickled, [len(buffer) for buffer in buffers])
        try:
            kind += f"{_BUFFER}{sandbox.channel.put(buffers)}"
            pickled = envelope
        except Exception:  # noqa: BLE001 - no space, or the server has ended: send a plain body
            pickled = envelope + b"".join(buffers)
    return request._replace(body=pickled, headers={**request.headers, _TYPE: kind})


def decode_reply(reply: HttpReply) -> HttpReply:
    """Map the shared buffer that a reply announces, if it announces one."""
    _, found, number = reply.headers.get("content-type", "").partition(_BUFFER)
    if not found or sandbox.channel is None:
        return reply
    return reply._replace(memory=sandbox.channel.take(int(number)))

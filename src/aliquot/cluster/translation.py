"""Turn run requests and outcomes into messages and back.

Shared memory does not reach another machine. So the contents of shared buffers are sent, and the receiver puts them
into buffers of its own.
"""

import os
from collections.abc import Callable

import msgspec
from msgspec import Raw

from aliquot.cluster.frames import MAX_MESSAGE_BYTES
from aliquot.cluster.messages import Ended, RunCommand
from aliquot.core.units import MIB
from aliquot.live.bodies.large import LARGE_BODY_BYTES
from aliquot.live.node.base import BatchItem, BufferHandle, Outcome, OutputListener, PartReceiver, RunRequest

_encode_json = msgspec.json.Encoder().encode
_decode_items = msgspec.json.Decoder(tuple[BatchItem, ...]).decode
_decode_defaults = msgspec.json.Decoder(dict[str, Raw]).decode
MAX_BODY_BYTES = MAX_MESSAGE_BYTES - 16 * MIB  # of everything in a message that may be large
TOO_LARGE = f"more than {MAX_BODY_BYTES} bytes, which is the most that can be sent between the head and a node"
MakeBuffer = Callable[[bytes], BufferHandle]  # raises `SharedBufferError`


def run_command(sandbox: int, request: RunRequest) -> RunCommand:
    """Return the message for a run."""
    return RunCommand(
        sandbox,
        request.invocation,
        bytes(request.payload),
        request.pickled,
        request.env,
        request.timeout_ms,
        request.logs_bytes,
        takes_parts=isinstance(request.listener, PartReceiver),
        share=request.share,
        handed=request.handed,
        hand_on=request.hand_on,
        defaults=_encode_json(request.defaults) if request.defaults else b"",
        items=_encode_json(request.items) if request.items else b"",
        buffer=None if request.shared_buffer is None else contents(request.shared_buffer),
        objects=None if request.objects is None else tuple(contents(one) for one in request.objects),
    )


def run_request(command: RunCommand, listener: OutputListener, make_buffer: MakeBuffer) -> RunRequest:
    """Return the run that a message asks for. Raises `SharedBufferError` if there is no memory for its buffers."""
    return RunRequest(
        command.invocation,
        _body(command.payload),
        command.pickled,
        command.env,
        command.timeout_ms,
        command.logs_bytes,
        listener,
        shared_buffer=None if command.buffer is None else make_buffer(command.buffer),
        share=command.share,
        handed=command.handed,
        hand_on=command.hand_on,
        defaults=_decode_defaults(command.defaults) if command.defaults else {},
        objects=None if command.objects is None else tuple(make_buffer(one) for one in command.objects),
        items=_decode_items(command.items) if command.items else (),
    )


def ended(outcome: Outcome) -> Ended:
    """Return the message for an outcome."""
    return Ended(
        outcome.status,
        bytes(outcome.result),
        outcome.run_s,
        outcome.logs,
        None if outcome.pickled is None else bytes(outcome.pickled),
        outcome.timed_out,
        None if outcome.shared_buffer is None else contents(outcome.shared_buffer),
        outcome.outer,
        outcome.inside_s,
        outcome.failure,
    )


def outcome(message: Ended, make_buffer: MakeBuffer) -> Outcome:
    """Return the outcome that a message describes. Raises `SharedBufferError` if there is no memory for its buffer."""
    return Outcome(
        message.status,
        _body(message.result),
        message.run_s,
        message.logs,
        None if message.pickled is None else _body(message.pickled),
        message.timed_out,
        None if message.buffer is None else make_buffer(message.buffer),
        message.outer,
        message.inside_s,
        message.failure,
    )


def size_of(body: RunRequest | Outcome) -> int:
    """Return the bytes of a request's or an outcome's payload and shared buffers."""
    buffer = 0 if body.shared_buffer is None else body.shared_buffer.size
    if isinstance(body, Outcome):
        return buffer + len(body.result) + len(body.pickled or b"")
    return buffer + len(body.payload) + sum(one.size for one in body.objects or ())


def contents(buffer: BufferHandle) -> bytes:
    """Return the bytes of a shared buffer."""
    found = bytearray()
    while len(found) < buffer.size:
        part = os.pread(buffer.fd, buffer.size - len(found), len(found))
        if not part:
            break
        found += part
    return bytes(found)


def _body(data: bytes) -> bytes | memoryview:
    """Return a body as the rest of the platform takes it: a large one as a view."""
    return memoryview(data) if len(data) > LARGE_BODY_BYTES else data

"""What a sandbox is told: at its start what it is to serve, and of a group what is to run."""

import msgspec
from msgspec.structs import asdict

from aliquot.live.bodies.large import allocate
from aliquot.live.node.base import Launch, RunRequest
from aliquot.live.node.control_channel import SandboxChannel
from aliquot.runtime.frames import REPLY


def description_of(
    launch: Launch, result_bytes: int, command: list[str] | None, data_bytes: int | None, side: SandboxChannel | None
) -> bytes:
    """As `aliquot.runtime.launcher` takes it; the command, if any, is what runs functions of its kind."""
    description = {
        "name": launch.function,
        "code": launch.code,
        "binary": launch.binary,
        "main": launch.main or "main",
        "env": launch.env,
        "sdk": launch.sdk,
        "result_bytes": result_bytes,
        "command": command,
        "data_bytes": data_bytes,
        "buffers_token": side.buffers.token if side is not None else None,
    }
    if launch.members:
        description |= {"members": [asdict(member) for member in launch.members], "first": launch.main}
    return msgspec.json.encode(description)


def run_more(request: RunRequest) -> bytes:
    """The first part of the frame, of a run in a group or in a sequence of the SDK's functions."""
    return msgspec.json.encode({
        "env": request.env,
        "steps": request.steps,
        "pickled": request.pickled,
        "share": request.share,
        "handed": request.handed,
        "hand_on": request.hand_on,
        "defaults": request.defaults,
    })  # fmt: skip


class LargeReply:
    __slots__ = ("_size", "buffer_number", "have", "status", "whole")

    def __init__(self, status: int, buffer_number: int, size: int, pickled: int, begun: bytes) -> None:
        self.status, self.buffer_number = status, buffer_number
        self._size = size
        self.whole = allocate(size + pickled)
        self.have = len(begun) - REPLY.size
        self.whole[: self.have] = begun[REPLY.size :]

    @property
    def room(self) -> memoryview:
        return self.whole[self.have :]

    @property
    def result(self) -> memoryview:
        return self.whole[: self._size]

    @property
    def pickled(self) -> memoryview | None:
        return self.whole[self._size :] or None

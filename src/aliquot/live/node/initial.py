"""What a sandbox is told: at its start what it is to serve, and of a group what is to run."""

import msgspec
from msgspec.structs import asdict

from aliquot.live.node.base import Launch, RunRequest
from aliquot.live.node.side import Side


def description_of(
    launch: Launch, result_bytes: int, command: list[str] | None, data_bytes: int | None, side: Side | None
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

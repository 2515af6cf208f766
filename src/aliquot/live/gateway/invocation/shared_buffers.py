"""Pickled bodies whose large buffers are in shared memory: what a sandbox says of them in its content type.

`application/x-aliquot-pickle; desk=TOKEN; parcel=3`: the desk is the sandbox's own, where a result's buffers may go;
the parcel has the arguments'. An answer names the parcel that the caller finds at its desk.
"""

import re

from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.node.base import BufferHandle
from aliquot.live.node.shared_buffers import NodeBuffers, SandboxBuffers, SharedBufferError

_SHARED = re.compile(rb"[^;]+; desk=([0-9a-f]{32})(?:; parcel=([0-9]{1,5}))?")


def shared(
    content_type: bytes, body: bytes | memoryview, desks: NodeBuffers | None
) -> tuple[SandboxBuffers | None, BufferHandle | None]:
    """The caller's desk, and the parcel that belongs to the body. A desk that is not known here is none."""
    found = _SHARED.fullmatch(content_type)
    desk = desks.find(found[1].decode()) if found is not None and desks is not None else None
    if found is None or found[2] is None:
        return desk, None
    if desk is None:
        raise Refusal(400, "The parcel with the arguments cannot be taken: the desk is not of this platform.")
    try:
        return desk, desk.hand_on(int(found[2]), body)
    except (SharedBufferError, ValueError) as error:
        raise Refusal(400, f"The parcel with the arguments cannot be taken: {error}.") from error

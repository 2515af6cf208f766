"""Pickled bodies whose large buffers are in shared memory, as the content type describes them.

In `application/x-aliquot-pickle; sandbox=TOKEN; buffer=3` the token names the calling sandbox, which can take the
result's buffers. Number 3 is its shared buffer with the arguments. A reply names the shared buffer with the result.
"""

import re

from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.invocations.call import SharedArguments
from aliquot.live.node.shared_buffers import NodeBuffers, SharedBufferError

_SHARED = re.compile(rb"[^;]+; sandbox=([0-9a-f]{32})(?:; buffer=([0-9]{1,5}))?")


def shared_arguments(
    content_type: bytes, body: bytes | memoryview, node_buffers: NodeBuffers | None
) -> SharedArguments:
    """Find the shared buffers that the content type names. Raises a 400 for buffers that cannot be taken."""
    found = _SHARED.fullmatch(content_type)
    own = node_buffers.find(found[1].decode()) if found is not None and node_buffers is not None else None
    if found is None or found[2] is None:
        return SharedArguments(reply_buffers=own)
    if own is None:
        raise Refusal(400, "The shared buffer with the arguments cannot be taken: the sandbox is not of this platform.")
    try:
        buffer = own.hand_on(int(found[2]), body)
    except (SharedBufferError, ValueError) as error:
        raise Refusal(400, f"The shared buffer with the arguments cannot be taken: {error}.") from error
    return SharedArguments(buffer=buffer, reply_buffers=own)

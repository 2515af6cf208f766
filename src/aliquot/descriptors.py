"""The descriptors of the server: how many it may open, and how many of each kind.

| what | descriptors |
|---|---|
| a connection of a client | 1 |
| a sandbox, or a cell that is ready | 6: connection, two output pipes, process, control channel or tokens, view |
| a sandbox while it is forked | 6 more: the process's ends of these, its control groups, the mount of its view |
| a shared buffer | 1 |
| a body above a mebibyte | 2: its own and that of Python's mapping |
| a zygote | 2: its control socket and its error output |
| store, event loop, workers, installations | about 60 |

Every kind has a bound that is a part of the process's limit, and the parts add up to less than the whole. So no kind
can take the descriptors of another, and the server can always accept a connection.
"""

import resource
from typing import NamedTuple

from aliquot.core.errors import InputError

SANDBOX_DESCRIPTORS = 6
BODY_DESCRIPTORS = 2
STARTING_DESCRIPTORS = 6  # in addition, while a sandbox is forked
RESERVED_DESCRIPTORS = 128  # for zygotes and the server itself
MIN_DESCRIPTORS = 2 * RESERVED_DESCRIPTORS
MAX_DESCRIPTORS = 1_000_000  # a larger limit is of no use


class DescriptorShares(NamedTuple):
    """The most that the server may have of each kind."""

    connections: int
    sandboxes: int  # ready cells included
    shared_buffers: int
    request_bodies: int  # above a mebibyte
    reply_bodies: int


def divide_descriptors(limit: int) -> DescriptorShares:
    """Divide the descriptors of a server, and leave some for zygotes and the server itself. Raises `InputError`."""
    if limit < MIN_DESCRIPTORS:
        raise InputError(
            f"the limit on open files is {limit}, and the server needs {MIN_DESCRIPTORS}; raise it with `ulimit -n`"
        )
    part = (limit - RESERVED_DESCRIPTORS) // 16
    return DescriptorShares(
        connections=6 * part,
        sandboxes=max(2, 4 * part // (SANDBOX_DESCRIPTORS + STARTING_DESCRIPTORS)),
        shared_buffers=2 * part,
        request_bodies=3 * part // (2 * BODY_DESCRIPTORS),
        reply_bodies=3 * part // (2 * BODY_DESCRIPTORS),
    )


def raise_descriptor_limit() -> int:
    """Raise this process's limit on open descriptors as far as it may, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return min(limit, MAX_DESCRIPTORS)

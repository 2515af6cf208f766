"""What a sandbox uses of its device."""

from msgspec import Struct


class Used(Struct, frozen=True, gc=False):
    """What a sandbox has used so far, and holds now."""

    sandbox: int
    compute_s: float  # seconds of the whole device; of several, on average
    memory_bytes: int | None  # on the device; None: the driver does not count it, the node's count of the sandbox does

"""What no trace tells: how long bytes take to reach a device."""

from aliquot.core.units import GIB
from aliquot.sim.workloads import MICROSECONDS

DEVICE_BYTES_PER_S = 12 * GIB  # from the host to a device, about what PCIe 3.0 x16 gives
STORE_BYTES_PER_S = GIB  # from where images and weights lie to the host


def load_s(memory_bytes: int) -> float:
    """Seconds to bring a function's bytes to the device."""
    return round(memory_bytes / DEVICE_BYTES_PER_S, MICROSECONDS)

"""The annotations of a kernel graph's call: its counters, and the device time and memory that are billed."""

import msgspec

from aliquot.kernels.counters import KernelCounters
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call
from aliquot.live.node.base import Outcome, Status

_BEGIN = b'{"kernels":'
_MAX_COUNTERS_BYTES = 1024


def kernel_notes(call: Call, outcome: Outcome) -> str:
    """Return the annotations of a call whose result begins with its counters. A run that failed has none of these."""
    notes = ""
    if outcome.status is Status.SUCCESS and (counters := _counters(outcome)) is not None:
        notes = note("kernels", counters)
    needs = parse_needs(call.action)
    held_bytes = needs.gpu_memory_bytes + needs.run_bytes
    notes += note("deviceSeconds", round(outcome.run_s * needs.gpu_share, 6))
    return notes + note("byteSeconds", round(outcome.run_s * held_bytes))


def _counters(outcome: Outcome) -> KernelCounters | None:
    head = bytes(outcome.result[:_MAX_COUNTERS_BYTES])
    if not head.startswith(_BEGIN):
        return None
    try:
        return msgspec.json.decode(head[len(_BEGIN) : head.index(b"}") + 1], type=KernelCounters)
    except (ValueError, msgspec.DecodeError):  # a kernel has written over the process that counts
        return None

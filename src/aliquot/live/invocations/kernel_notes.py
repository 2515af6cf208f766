"""The annotation of a kernel graph's call: its counters."""

import msgspec

from aliquot.kernels.counters import RecordedCounters
from aliquot.live.invocations.activations import note
from aliquot.live.node.base import Outcome, Status

_BEGIN = b'{"kernels":'
_MAX_COUNTERS_BYTES = 1024


def kernel_notes(outcome: Outcome) -> str:
    """Return the annotation of a call whose result begins with its counters. A run that failed has none."""
    if outcome.status is Status.SUCCESS and (counters := _counters(outcome)) is not None:
        return note("kernels", counters)
    return ""


def _counters(outcome: Outcome) -> RecordedCounters | None:
    head = bytes(outcome.result[:_MAX_COUNTERS_BYTES])
    if not head.startswith(_BEGIN):
        return None
    try:
        return msgspec.json.decode(head[len(_BEGIN) : head.index(b"}") + 1], type=RecordedCounters)
    except (ValueError, msgspec.DecodeError):  # a kernel has written over the process that counts
        return None

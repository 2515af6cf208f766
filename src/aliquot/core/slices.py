"""Allot each sandbox its slice of the device's compute, and inform the shell when a slice changes.

Only accelerators have slices. Functions on a node's `cpu` device request none.
"""

from collections.abc import Sequence

from aliquot.core.commands import Command, SetSlice
from aliquot.core.interfaces import Allotment, Sharing
from aliquot.core.model import CPU
from aliquot.core.records import Sandbox, Slice


class SliceAllocator:
    """Allots slices by the sharing policy, and emits `SetSlice` for those that change."""

    def __init__(self, sharing: Sharing, outbox: list[Command]) -> None:
        self._sharing = sharing
        self._depends_on_others = sharing.depends_on_others
        self._outbox = outbox

    def create(self, sandbox: Sandbox) -> None:
        """Give a starting sandbox its slice. Until it runs, it may not use more than its request."""
        spec, device = sandbox.flow.spec, sandbox.device
        if device.spec.kind == CPU:
            return
        limit = 1.0 if spec.share_limit is None else min(1.0, spec.share_limit)  # on each device
        slice_ = sandbox.slice = Slice(sandbox.id, spec.share_on(device.spec), limit)
        if self._depends_on_others:
            self._set([(slice_, Allotment(slice_.request, slice_.request))], "it starts")
        else:
            self._allot([slice_], "it starts")

    def begin_run(self, sandbox: Sandbox) -> None:
        """Count the sandbox as active, since it is about to run."""
        if self._depends_on_others and sandbox.slice is not None:
            active = sandbox.device.active_slices
            active[sandbox.id] = sandbox.slice
            self._allot(list(active.values()), "a sandbox began to run")

    def end_run(self, sandbox: Sandbox) -> None:
        """Give the compute of a sandbox that has stopped running to the others."""
        if self._depends_on_others and sandbox.slice is not None:
            active = sandbox.device.active_slices
            if active.pop(sandbox.id, None) is not None:
                self._allot(list(active.values()), "a sandbox stopped running")

    def _allot(self, slices: Sequence[Slice], reason: str) -> None:
        self._set(list(zip(slices, self._sharing.allot(slices), strict=True)), reason)

    def _set(self, allotted: list[tuple[Slice, Allotment]], reason: str) -> None:
        changed = [(slice_, allotment) for slice_, allotment in allotted if slice_.allotment != allotment]
        # Shrink slices before others grow: the ceilings never add up to more than the device has.
        for slice_, allotment in sorted(changed, key=lambda pair: pair[1].ceiling - pair[0].allotment.ceiling):
            slice_.allotment = allotment
            self._outbox.append(SetSlice(slice_.sandbox, allotment.share, allotment.ceiling, reason))

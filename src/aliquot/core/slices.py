"""Each sandbox's part of its device's compute; tells the shell when it changes.

Only accelerators have slices: on a node's `cpu` device functions run that asked for none.
"""

from collections.abc import Sequence

from aliquot.core.commands import Command, SetSlice
from aliquot.core.interfaces import Allotment, Sharing
from aliquot.core.model import CPU
from aliquot.core.records import Sandbox, Slice


class Slices:
    def __init__(self, sharing: Sharing, outbox: list[Command]) -> None:
        self._sharing = sharing
        self._looks_around = sharing.looks_around
        self._outbox = outbox

    def cut(self, sandbox: Sandbox) -> None:
        """For a sandbox that starts: while it is not at work it may not stretch into what others are due."""
        spec, device = sandbox.flow.spec, sandbox.device
        if device.spec.kind == CPU:
            return
        limit = 1.0 if spec.share_limit is None else min(1.0, spec.share_limit)  # of each device
        slice_ = sandbox.slice = Slice(sandbox.id, spec.share_on(device.spec), limit)
        if self._looks_around:
            self._tell([(slice_, Allotment(slice_.request, slice_.request))])
        else:
            self._divide([slice_])

    def begin(self, sandbox: Sandbox) -> None:
        """It is about to run."""
        if self._looks_around and sandbox.slice is not None:
            at_work = sandbox.device.at_work
            at_work[sandbox.id] = sandbox.slice
            self._divide(list(at_work.values()))

    def end(self, sandbox: Sandbox) -> None:
        """It does not run any more, or is gone: what it had may be others'."""
        if self._looks_around and sandbox.slice is not None:
            at_work = sandbox.device.at_work
            if at_work.pop(sandbox.id, None) is not None:
                self._divide(list(at_work.values()))

    def _divide(self, slices: Sequence[Slice]) -> None:
        self._tell(list(zip(slices, self._sharing.allot(slices), strict=True)))

    def _tell(self, allotted: list[tuple[Slice, Allotment]]) -> None:
        changed = [(slice_, allotment) for slice_, allotment in allotted if slice_.allotment != allotment]
        # First what is taken away, then what is given: in between nobody has more than there is.
        for slice_, allotment in sorted(changed, key=lambda pair: pair[1].ceiling - pair[0].allotment.ceiling):
            slice_.allotment = allotment
            self._outbox.append(SetSlice(slice_.sandbox, allotment.share, allotment.ceiling))

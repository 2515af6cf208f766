"""Guarded elastic sharing, for devices that are slow to give borrowed compute back.

A sandbox cannot borrow compute that another running sandbox has requested. Its ceiling is the compute that the requests
of the other running sandboxes leave. As soon as the owner of borrowed compute begins to run, the ceilings of the others
are lowered.
"""

from collections.abc import Sequence

from aliquot.core.interfaces import Allotment, Sharing, SliceView


class ElasticGuarded(Sharing):
    depends_on_others = True

    def allot(self, slices: Sequence[SliceView]) -> Sequence[Allotment]:
        requested = sum(slice_.request for slice_ in slices)
        return [
            Allotment(slice_.request, max(slice_.request, min(slice_.limit, 1 - requested + slice_.request)))
            for slice_ in slices
        ]

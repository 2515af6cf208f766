"""What was asked for, no less and no more, whoever else is at work: run times are the same every time."""

from collections.abc import Sequence

from aliquot.core.interfaces import Allotment, Sharing, SliceView


class Hard(Sharing):
    def allot(self, slices: Sequence[SliceView]) -> Sequence[Allotment]:
        return [Allotment(slice_.request, slice_.request) for slice_ in slices]

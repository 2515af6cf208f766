"""Hard sharing: each sandbox gets exactly its request, so that run times do not depend on others."""

from collections.abc import Sequence

from aliquot.core.interfaces import Allotment, Sharing, SliceView


class Hard(Sharing):
    def allot(self, slices: Sequence[SliceView]) -> Sequence[Allotment]:
        return [Allotment(slice_.request, slice_.request) for slice_ in slices]

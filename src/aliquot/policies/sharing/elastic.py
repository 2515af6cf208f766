"""Idle compute is lent: each may stretch to its limit, and when all want it, they get it in proportion to requests.

The device gives it back by itself: whoever is below its part goes first there.
"""

from collections.abc import Sequence

from aliquot.core.interfaces import Allotment, Sharing, SliceView


class Elastic(Sharing):
    def allot(self, slices: Sequence[SliceView]) -> Sequence[Allotment]:
        return [Allotment(slice_.request, max(slice_.request, slice_.limit)) for slice_ in slices]

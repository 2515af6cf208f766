"""Elastic sharing: a sandbox may borrow idle compute up to its limit.

When all want compute, they get it in proportion to their requests. The device itself enforces that, because it serves
sandboxes below their part first.
"""

from collections.abc import Sequence

from aliquot.core.interfaces import Allotment, Sharing, SliceView


class Elastic(Sharing):
    def allot(self, slices: Sequence[SliceView]) -> Sequence[Allotment]:
        return [Allotment(slice_.request, max(slice_.request, slice_.limit)) for slice_ in slices]

"""Elastic, for devices that are slow to give back what was lent: nobody stretches into what another at work is due.

The ceiling of each is what the requests of the others at work leave. Compute is lent only while its owner is not at
work at all; the moment the owner begins, the ceilings of the others come down.
"""

from collections.abc import Sequence

from aliquot.core.interfaces import Allotment, Sharing, SliceView


class ElasticGuarded(Sharing):
    depends_on_others = True

    def allot(self, slices: Sequence[SliceView]) -> Sequence[Allotment]:
        asked = sum(slice_.request for slice_ in slices)
        return [
            Allotment(slice_.request, max(slice_.request, min(slice_.limit, 1 - asked + slice_.request)))
            for slice_ in slices
        ]

"""Nothing is brought before it is opened, and no prediction is asked for."""

from collections.abc import Container, Sequence

from aliquot.core.events import LikelyFile
from aliquot.core.interfaces import Prefetching, Wish


class OnDemand(Prefetching):
    asks = False

    def choose(self, model: str, files: Sequence[LikelyFile], under_way: Container[tuple[str, str]]) -> Sequence[Wish]:
        return ()

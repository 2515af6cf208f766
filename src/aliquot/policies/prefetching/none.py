"""No prefetching: files are fetched when they are opened, and no predictions are requested."""

from collections.abc import Container, Sequence

from aliquot.core.events import LikelyFile
from aliquot.core.interfaces import FileChoice, Prefetching


class OnDemand(Prefetching):
    wants_predictions = False

    def choose(
        self, model: str, files: Sequence[LikelyFile], in_flight: Container[tuple[str, str]]
    ) -> Sequence[FileChoice]:
        return ()

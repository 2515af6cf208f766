"""What is more likely than theta to be opened, most likely first, N at most; what is under way may fall to `keep`."""

from collections.abc import Container, Sequence

from aliquot.core.events import LikelyFile
from aliquot.core.interfaces import Limits, Params, Prefetching, Wish

MIB = 2**20
ALIKE = 1  # decimals that make a difference to the order: of those alike the model names first what comes sooner


class ThresholdParams(Params, frozen=True):
    theta: float = 0.75  # the probability from which on, exclusively, a file is worth its bytes
    keep: float = 0.5  # what is on its way is cancelled at this probability or less
    top_n: int = 16  # files of one prediction
    budget_mib: float = 512  # on their way at once, of all tenants together
    at_once: int = 64  # files on their way


class Threshold(Prefetching):
    params_type = ThresholdParams

    def __init__(self, params: ThresholdParams) -> None:
        super().__init__(params)
        self.limits = Limits(round(params.budget_mib * MIB), params.at_once)
        self._theta = params.theta
        self._keep = min(params.keep, params.theta)
        self._top_n = params.top_n

    def choose(self, model: str, files: Sequence[LikelyFile], under_way: Container[tuple[str, str]]) -> Sequence[Wish]:
        likely = [
            file
            for file in files
            if file.probability > (self._keep if (file.dataset, file.path) in under_way else self._theta)
        ]
        likely.sort(key=lambda file: -round(file.probability, ALIKE))
        return [Wish(file, f"P {file.probability:.2f} of being opened, by {model}") for file in likely[: self._top_n]]

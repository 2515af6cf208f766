"""What is more likely than theta to be opened, most likely first, N at most; what is under way may fall to `keep`."""

from aliquot.core.events import LikelyFile
from aliquot.policies.prefetching.parts.likeliest import Likeliest, LikeliestParams


class ThresholdParams(LikeliestParams, frozen=True):
    theta: float = 0.75  # the probability above which a file is worth its bytes
    keep: float = 0.5  # what is on its way is cancelled at this probability or less


class Threshold(Likeliest):
    params_type = ThresholdParams

    def __init__(self, params: ThresholdParams) -> None:
        super().__init__(params)
        self._theta = params.theta
        self._keep = min(params.keep, params.theta)

    def is_worth_it(self, file: LikelyFile, *, in_flight: bool) -> bool:
        return file.probability > (self._keep if in_flight else self._theta)

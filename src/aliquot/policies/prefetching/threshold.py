"""Threshold: fetch at most N files that are more likely than theta to be opened, most likely first."""

from aliquot.core.events import LikelyFile
from aliquot.policies.prefetching.parts.most_likely import MostLikelyFirst, MostLikelyParams


class ThresholdParams(MostLikelyParams, frozen=True):
    theta: float = 0.75  # probability above which a file is fetched
    keep: float = 0.5  # a fetch in flight is cancelled at this probability or less


class Threshold(MostLikelyFirst):
    params_type = ThresholdParams

    def __init__(self, params: ThresholdParams) -> None:
        super().__init__(params)
        self._theta = params.theta
        self._keep = min(params.keep, params.theta)

    def is_worth_it(self, file: LikelyFile, *, in_flight: bool) -> bool:
        return file.probability > (self._keep if in_flight else self._theta)

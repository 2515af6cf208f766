"""What saves more than it risks: the wait for it, if it is opened, against the link's time, if it is not.

A file that takes s seconds of the link after a latency of l is worth it when P (l + s) > price (1 - P) s. A large file
needs P > price / (1 + price): for a price of 3 that is `threshold` with theta at 0.75. The smaller a file, the more of
the wait for it is latency, which costs the link nothing, and the less likely it needs to be.
"""

from aliquot.core.events import LikelyFile
from aliquot.policies.prefetching.parts.likeliest import Likeliest, LikeliestParams

MIN_BANDWIDTH_MB_S = 1e-9  # of a bandwidth


class ExpectedBenefitParams(LikeliestParams, frozen=True):
    top_n: int = 64
    price: float = 3  # seconds saved that a second of the link must bring to be risked
    latency_ms: float = 2  # before the first byte of a file
    bandwidth_mb_s: float = 100  # of the link


class ExpectedBenefit(Likeliest):
    params_type = ExpectedBenefitParams

    def __init__(self, params: ExpectedBenefitParams) -> None:
        super().__init__(params)
        self._price = params.price
        self._latency_s = params.latency_ms / 1e3
        self._bytes_s = max(params.bandwidth_mb_s, MIN_BANDWIDTH_MB_S) * 1e6

    def is_worth_it(self, file: LikelyFile, *, in_flight: bool) -> bool:
        price = min(self._price, 1) if in_flight else self._price  # part of it has been paid
        link_s = file.size / self._bytes_s
        return file.probability * (self._latency_s + link_s) > price * (1 - file.probability) * link_s

    def reason(self, file: LikelyFile, model: str) -> str:
        link_s = file.size / self._bytes_s
        saves = f"it would save {_told(self._latency_s + link_s)}"
        return f"{super().reason(file, model)}: {saves} for {_told(link_s)} of the link"


def _told(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.2g} ms"

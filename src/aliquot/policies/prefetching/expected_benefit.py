"""Expected benefit: fetch a file if the expected wait it saves exceeds the expected link time it wastes.

A file that takes s seconds of the link after a latency of l is worth fetching when P (l + s) > price (1 - P) s. A large
file needs P > price / (1 + price). For a price of 3 that equals `threshold` with theta at 0.75. For a small file most
of the wait is latency, which costs the link nothing, so a lower P is enough.
"""

from aliquot.core.events import LikelyFile
from aliquot.policies.prefetching.parts.most_likely import MostLikelyFirst, MostLikelyParams

MIN_BANDWIDTH_MB_S = 1e-9


class ExpectedBenefitParams(MostLikelyParams, frozen=True):
    top_n: int = 64
    price: float = 3  # seconds that must be saved for each second of the link at risk
    latency_ms: float = 2  # until the first byte of a file arrives
    bandwidth_mb_s: float = 100  # the link's bandwidth


class ExpectedBenefit(MostLikelyFirst):
    params_type = ExpectedBenefitParams

    def __init__(self, params: ExpectedBenefitParams) -> None:
        super().__init__(params)
        self._price = params.price
        self._latency_s = params.latency_ms / 1e3
        self._bytes_s = max(params.bandwidth_mb_s, MIN_BANDWIDTH_MB_S) * 1e6

    def is_worth_it(self, file: LikelyFile, *, in_flight: bool) -> bool:
        price = min(self._price, 1) if in_flight else self._price  # part of the transfer is done
        link_s = file.size / self._bytes_s
        return file.probability * (self._latency_s + link_s) > price * (1 - file.probability) * link_s

    def reason(self, file: LikelyFile, model: str) -> str:
        link_s = file.size / self._bytes_s
        saves = f"it would save {_seconds_text(self._latency_s + link_s)}"
        return f"{super().reason(file, model)}: {saves} for {_seconds_text(link_s)} of the link"


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.2g} ms"

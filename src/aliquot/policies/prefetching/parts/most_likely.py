"""The base of policies that fetch at most N files, most likely first, and differ in which are worth fetching."""

from abc import abstractmethod
from collections.abc import Container, Sequence

from aliquot.core.events import LikelyFile
from aliquot.core.interfaces import FetchLimits, FileChoice, Params, Prefetching
from aliquot.core.units import MIB

PROBABILITY_DECIMALS = 1  # files of equal rounded probability keep the model's order, sooner opens first


class MostLikelyParams(Params, frozen=True):
    top_n: int = 16  # maximum number of files of one prediction
    budget_mib: float = 512  # in flight at once, for all tenants together
    at_once: int = 64  # maximum number of fetches in flight


class MostLikelyFirst(Prefetching):
    def __init__(self, params: MostLikelyParams) -> None:
        super().__init__(params)
        self.limits = FetchLimits(round(params.budget_mib * MIB), params.at_once)
        self._top_n = params.top_n

    @abstractmethod
    def is_worth_it(self, file: LikelyFile, *, in_flight: bool) -> bool:
        """Return whether to fetch the file, or to continue a fetch that is in flight."""

    def reason(self, file: LikelyFile, model: str) -> str:
        return f"P {file.probability:.2f} of being opened, by {model}"

    def choose(
        self, model: str, files: Sequence[LikelyFile], in_flight: Container[tuple[str, str]]
    ) -> Sequence[FileChoice]:
        likely = [file for file in files if self.is_worth_it(file, in_flight=(file.dataset, file.path) in in_flight)]
        likely.sort(key=lambda file: -round(file.probability, PROBABILITY_DECIMALS))
        return [FileChoice(file, self.reason(file, model)) for file in likely[: self._top_n]]

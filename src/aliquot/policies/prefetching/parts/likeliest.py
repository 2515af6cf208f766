"""What policies have in common that bring the likeliest first, N at most, and differ in what they find worth it."""

from abc import abstractmethod
from collections.abc import Container, Sequence

from aliquot.core.events import LikelyFile
from aliquot.core.interfaces import FetchLimits, FileChoice, Params, Prefetching
from aliquot.core.units import MIB

ALIKE = 1  # decimals that make a difference to the order: of those alike the model names first what comes sooner


class LikeliestParams(Params, frozen=True):
    top_n: int = 16  # files of one prediction
    budget_mib: float = 512  # on their way at once, of all tenants together
    at_once: int = 64  # files on their way


class Likeliest(Prefetching):
    def __init__(self, params: LikeliestParams) -> None:
        super().__init__(params)
        self.limits = FetchLimits(round(params.budget_mib * MIB), params.at_once)
        self._top_n = params.top_n

    @abstractmethod
    def is_worth_it(self, file: LikelyFile, *, in_flight: bool) -> bool:
        """To bring it or, where it is under way, to go on."""

    def reason(self, file: LikelyFile, model: str) -> str:
        return f"P {file.probability:.2f} of being opened, by {model}"

    def choose(
        self, model: str, files: Sequence[LikelyFile], in_flight: Container[tuple[str, str]]
    ) -> Sequence[FileChoice]:
        likely = [file for file in files if self.is_worth_it(file, in_flight=(file.dataset, file.path) in in_flight)]
        likely.sort(key=lambda file: -round(file.probability, ALIKE))
        return [FileChoice(file, self.reason(file, model)) for file in likely[: self._top_n]]

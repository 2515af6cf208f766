"""A storage fabric that misbehaves at random: late, unrequested and wrong predictions, and fetches that fail.

It forecasts demand at random as well.

Every fetch is checked. It must belong to an open audience with a sufficient probability, stay within the budget, be the
only one of its file, and be cancelled at most once.
"""

from collections.abc import Callable, Collection, Iterable
from random import Random

from aliquot.core.commands import CancelFetch, Fetch, Predict
from aliquot.core.events import (
    DatasetRemoved,
    DemandForecast,
    DemandRow,
    Event,
    FetchEnded,
    FilesPredicted,
    LikelyFile,
    SessionBegan,
    SessionEnded,
)
from aliquot.core.interfaces import FetchLimits
from aliquot.core.prefetching.records import audience_of
from aliquot.core.units import MIB
from aliquot.policies.prefetching.threshold import ThresholdParams

THETA = ThresholdParams().theta
MENTIONED = 0.2  # part of the functions that a forecast tells about
DATASETS = ("images", "texts")
SIZES = (0, MIB, 100 * MIB, 200 * MIB, 700 * MIB)  # the last one exceeds the whole budget


class ChaosFabric:
    """Answers the commands of the prefetcher with random events."""

    def __init__(self, random: Random, limits: FetchLimits) -> None:
        self._random = random
        self._limits = limits
        self._files = [(dataset, f"{number}.bin", random.choice(SIZES)) for dataset in DATASETS for number in range(6)]
        self._sizes = {(dataset, path): size for dataset, path, size in self._files}
        self._requests: list[Predict] = []
        self._predictions: dict[tuple[str, str], FilesPredicted] = {}  # the last one of each open audience
        self._fetches: dict[int, Fetch] = {}
        self._cancelled: dict[int, None] = {}
        self.ended = 0

    def forecast(self, functions: Iterable[tuple[str, str]]) -> list[Event]:
        """Forecast the demand of some functions, by tenant and name."""
        rows = [
            DemandRow(*key, self._random.random(), 60, 0, 1, self._random.randrange(4) + 1, self._random.randrange(3))
            for key in functions
            if self._random.random() < MENTIONED
        ]
        return [DemandForecast(tuple(rows), self._random.choice((0.5, 5, 50)))]

    def actions(
        self, functions: Collection[tuple[str, str]], session: Callable[[], tuple[str, str]]
    ) -> list[tuple[int, Callable[[], list[Event]]]]:
        """Return actions with their weights. `session` returns the tenant and the name of a session."""
        return [
            (3, lambda: self.forecast(functions)),
            (2, lambda: self.begin_session(*session())),
            (2, lambda: self.end_session(*session())),
            (8, self.predict),
            (8, self.end_fetch),
            (1, self.remove_dataset),
        ]

    @property
    def busy(self) -> bool:
        return bool(self._fetches)

    # --- commands ---------------------------------------------------------------------------------------

    def perform(self, command: Predict | Fetch | CancelFetch) -> None:
        match command:
            case Predict():
                self._requests.append(command)
            case Fetch():
                self._fetch(command)
            case CancelFetch():
                if command.fetch not in self._fetches or command.fetch in self._cancelled:
                    raise AssertionError(f"cancelled a fetch that is not running: {command}")
                self._cancelled[command.fetch] = None

    def _fetch(self, fetch: Fetch) -> None:
        key = (fetch.dataset, fetch.path)
        there = [other for other in self._fetches.values() if other.node == fetch.node]
        if any((other.dataset, other.path) == key for other in there):
            raise AssertionError(f"fetched twice at the same time: {fetch}")
        prediction = self._predictions.get((fetch.tenant, fetch.session))
        likely = {(file.dataset, file.path): file.probability for file in prediction.files} if prediction else {}
        if likely.get(key, 0) <= THETA:
            raise AssertionError(f"fetched without a prediction: {fetch} after {prediction}")
        self._fetches[fetch.fetch] = fetch
        running = [self._sizes[other.dataset, other.path] for other in (*there, fetch)]
        if len(running) > self._limits.fetches or (sum(running) > self._limits.bytes and len(running) > 1):
            raise AssertionError(f"exceeds the budget {self._limits}: {running}")

    def node_lost(self, node: str) -> None:
        """Forget the fetches of a node that is lost."""
        for number in [number for number, fetch in self._fetches.items() if fetch.node == node]:
            del self._fetches[number]
            self._cancelled.pop(number, None)

    # --- actions ----------------------------------------------------------------------------------------

    def begin_session(self, tenant: str, session: str) -> list[Event]:
        return [SessionBegan(tenant, session)]

    def end_session(self, tenant: str, session: str) -> list[Event]:
        self._predictions.pop((tenant, session), None)
        return [SessionEnded(tenant, session)]

    def function_removed(self, tenant: str, function: str) -> None:
        self._predictions.pop((tenant, audience_of("", function)), None)

    def predict(self) -> list[Event]:
        """Answer a request for a prediction, perhaps a second time, or after its audience has ended."""
        if not self._requests:
            return []
        request = self._random.choice(self._requests)
        if self._random.random() < 0.5:  # noqa: PLR2004 - half of them may be answered again
            self._requests.remove(request)
        files = self._random.sample(self._files, self._random.randrange(0, 7))
        likely = tuple(LikelyFile(*file, self._random.choice((0.1, 0.6, 0.75, 0.8, 0.9, 1))) for file in files)
        prediction = FilesPredicted(request.tenant, request.session, "dice", likely)
        self._predictions[request.tenant, request.session] = prediction
        return [prediction]

    def end_fetch(self) -> list[Event]:
        if not self._fetches:
            return []
        number = self._random.choice(list(self._fetches))
        del self._fetches[number]
        self._cancelled.pop(number, None)
        self.ended += 1
        return [FetchEnded(number, self._random.choice((0, 0.1, 5)), self._random.choice(("", "", "", "a failure")))]

    def remove_dataset(self) -> list[Event]:
        dataset = self._random.choice(DATASETS)
        for audience, prediction in self._predictions.items():
            kept = tuple(file for file in prediction.files if file.dataset != dataset)
            self._predictions[audience] = FilesPredicted(prediction.tenant, prediction.session, prediction.model, kept)
        return [DatasetRemoved(dataset)]

"""The negative control: epochs in random order. Prefetching must not make them slower."""

from collections.abc import Callable
from statistics import fmean

from aliquot.core.units import MB
from aliquot_bench.origin.link import ServedOrigin
from aliquot_bench.prefetch.methods import LEARNED, PLAIN, VIEW
from aliquot_bench.prefetch.part import MIN_SESSIONS, PrefetchSizes
from aliquot_bench.prefetch.platform import serving
from aliquot_bench.prefetch.trial import SessionTrial, wasted_share
from aliquot_bench.prefetch.workload import ShuffledEpochs
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_most

LEAD_S = 0.5  # long enough to start fetching wrong files


class ControlPart:
    """The part `control`."""

    name = "control"

    def __init__(self, sizes: PrefetchSizes) -> None:
        self._sizes = sizes
        self._shuffled = ShuffledEpochs(sizes.epoch_files)
        self._trials: dict[str, list[SessionTrial]] = {PLAIN: [], VIEW: [], LEARNED: []}
        self._model = ""
        self.steps = 1 + 3 * sizes.epochs

    @property
    def files(self) -> dict[str, int]:
        return self._shuffled.files

    def run(self, link: ServedOrigin, on_step: Callable[[str], None]) -> None:
        users = [ShuffledEpochs.user]
        with serving(link, users) as learned, serving(link, users, "--prefetching", "none") as without:
            on_step("shuffled epochs, to learn from")
            for _ in range(MIN_SESSIONS):
                learned.run(self._shuffled.epoch())
            self._model = learned.train()
            for number in range(self._sizes.epochs):
                epoch = self._shuffled.epoch()
                on_step(f"{PLAIN}, shuffled epoch {number + 1}")
                self._trials[PLAIN].append(without.measure(epoch, LEAD_S, plain=True))
                for name, platform in ((VIEW, without), (LEARNED, learned)):
                    on_step(f"{name}, shuffled epoch {number + 1}")
                    platform.empty_cache()
                    self._trials[name].append(platform.measure(epoch, LEAD_S))

    def slowdown(self, method: str) -> float:
        """Return by how many percent a method is slower than the plain mount, over all epochs."""
        plain, own = (sum(trial.loading_s for trial in self._trials[name]) for name in (PLAIN, method))
        return PERCENT * (own / plain - 1)

    def goals(self) -> list[Goal]:
        return [at_most("shuffled epochs: slower than the plain mount", self.slowdown(LEARNED), 2, "%")]

    def tables(self) -> list[ResultTable]:
        rows: list[list[str | float | None]] = []
        for method, trials in self._trials.items():
            wasted = wasted_share(trials, self.files)
            times = [trial.loading_s for trial in trials]
            moved = fmean(trial.moved_bytes for trial in trials) / MB
            share = None if wasted is None else PERCENT * wasted
            rows.append([method, fmean(times), min(times), max(times), self.slowdown(method), moved, share])
        columns = ["method", "loading, s", "least", "most", "slower, %", "moved, MB an epoch", "wasted, %"]
        title = (
            f"Shuffled epochs on a cold node, {self._sizes.epochs} of {self._sizes.epoch_files} files ({self._model})"
        )
        return [ResultTable(title, columns, rows)]

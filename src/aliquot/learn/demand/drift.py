"""Watches a version that serves: its loss and coverage in windows of rows. No clock, no I/O."""

from collections import deque
from collections.abc import Mapping

from msgspec import Struct

from aliquot.learn.demand.calls import ApplicationKey
from aliquot.learn.demand.series import ScoredForecast, pinball

MIN_COVERAGE, MAX_COVERAGE = 0.85, 0.95


class DriftSettings(Struct, frozen=True):
    """The rows of a window, and what counts as drift."""

    rows: int = 500
    windows: int = 3
    loss: float = 1.2  # times that at the promotion
    first: int = 500  # rows without any version that begin a training


class Watched(Struct, frozen=True):
    """The figures of the last windows."""

    rows: int = 0  # since the version was made
    loss: float = 0.0  # of the last window
    coverage: float = 0.0


class DriftWatch:
    """Compares what serves with its scores at promotion. Rows that the version was scored on do not count."""

    def __init__(self, settings: DriftSettings, version: int, promoted_loss: float, after_s: float) -> None:
        """`version` is 0 if none was made. `after_s` is the time of the newest row that a version knows."""
        self._settings = settings
        self._version = version
        self._promoted_loss = promoted_loss
        self._after_s = after_s
        self._losses: deque[float] = deque(maxlen=settings.windows)
        self._coverages: deque[float] = deque(maxlen=settings.windows)
        self._begin_window()
        self._since = 0  # rows since the last reason
        self.watched = Watched()

    def demanded(
        self,
        key: ApplicationKey,
        at_s: float,
        value: float,
        last: float,
        model: str,
        made: Mapping[str, ScoredForecast],
    ) -> None:
        """Count a value that was forecast."""
        scored = made.get(model)
        if scored is None or at_s <= self._after_s:
            return
        self._rows += 1
        self._since += 1
        self._values += value
        self._loss += 2 * pinball(value, scored.band)
        if scored.outside is not None:
            self._told += 1
            self._inside += not scored.outside
        if self._rows >= self._settings.rows:
            self._losses.append(self._loss / max(self._values, 1.0))
            self._coverages.append(self._inside / self._told if self._told else 0.9)
            self.watched = Watched(self.watched.rows + self._rows, self._losses[-1], self._coverages[-1])
            self._begin_window()

    def stepped(self, key: ApplicationKey, at_s: float, chance: float, *, called: bool) -> None:
        """Leave out the chances of calls, which are learned all the time."""

    def reason(self) -> str:
        """Return why a training should begin, or an empty text. The same reason is not returned again at once."""
        found = self._reason()
        if found:
            self._since = 0
            self._losses.clear()
            self._coverages.clear()
        return found

    def _reason(self) -> str:
        settings = self._settings
        if not self._version:
            return f"{self._since} steps with calls, and no version yet" if self._since >= settings.first else ""
        if len(self._losses) < settings.windows:
            return ""
        limit = settings.loss * self._promoted_loss
        last = f"in {settings.windows} windows of {settings.rows} rows"
        if self._promoted_loss and min(self._losses) > limit:
            return f"the loss was above {limit:.3g} {last}, {settings.loss:g} times that at its promotion"
        if all(not MIN_COVERAGE <= coverage <= MAX_COVERAGE for coverage in self._coverages):
            return (
                f"the intervals covered {self._coverages[-1]:.0%} {last}, not {MIN_COVERAGE:.0%} to {MAX_COVERAGE:.0%}"
            )
        return ""

    def _begin_window(self) -> None:
        self._rows = self._told = self._inside = 0
        self._loss = self._values = 0.0

"""The next step of all transfers: demanded files first, then warmed ones, then predictions within their budget."""

from collections.abc import Iterable

from aliquot.storage.cache.records import Urgency
from aliquot.storage.cache.transfers.transfer import StepKind, Transfer, TransferStep

WORKERS_PER_SPARE = 4  # one worker in four stays free of the busiest link, in case that link hangs


def workers_per_link(workers: int) -> int:
    """Return how many workers one link may use at a time."""
    return workers - workers // WORKERS_PER_SPARE


class PrefetchBudget:
    """A token bucket that holds one second's worth of bytes. A rate of None is unlimited."""

    def __init__(self, bytes_per_s: int | None, *, now: float) -> None:
        self._rate = bytes_per_s
        self._tokens = float(bytes_per_s or 0)
        self._last_s = now

    def wait_s(self, *, now: float) -> float:
        """Return the seconds until bytes may be taken, 0 if that is now."""
        if not self._rate:
            return 0.0
        self._tokens = min(self._rate, self._tokens + (now - self._last_s) * self._rate)
        self._last_s = now
        return max(0.0, -self._tokens / self._rate)

    def take(self, taken_bytes: int) -> None:
        """Take bytes, even below zero: a chunk may be larger than one second's worth. Later ones wait for it."""
        if self._rate:
            self._tokens -= taken_bytes


class StepSchedule:
    """Chooses steps for workers within the limits per link, for background work and for predictions."""

    def __init__(self, workers: int, budget: PrefetchBudget) -> None:
        self._max_background = max(1, workers // 2)
        self._max_per_link = workers_per_link(workers)
        self._budget = budget
        self.wake_s: float | None = None  # when to look again even if nothing happens; set by `peek`

    def next_step(self, transfers: Iterable[Transfer], *, now: float) -> TransferStep | None:
        """Choose the most urgent step. Equals go by fewest running workers, then by order of arrival."""
        step = self.peek(transfers, now=now)
        if step is not None and step.kind is StepKind.CHUNK and step.transfer.is_for_prediction:
            entry = step.transfer.entry
            self._budget.take(entry.span(step.chunk)[1] if entry is not None else 0)
        return step

    def peek(self, transfers: Iterable[Transfer], *, now: float) -> TransferStep | None:
        """Return the step that `next_step` would choose, and set `wake_s`."""
        self.wake_s = None
        ranked = sorted((_rank(transfer), transfer) for transfer in transfers)
        running: dict[str, int] = {}
        background = 0
        demanded_links: set[str] = set()
        for (urgency, _, _), transfer in ranked:
            count = len(transfer.running)
            if count:
                running[transfer.link] = running.get(transfer.link, 0) + count
            if urgency is not Urgency.DEMAND:
                background += count
            elif _uses_link(transfer):
                demanded_links.add(transfer.link)
        for _, transfer in ranked:
            if running.get(transfer.link, 0) >= self._max_per_link:
                continue
            step = self._step_of(transfer, demanded_links, background, now=now)
            if step is not None:
                return step
        return None

    def may_continue_copy(
        self, transfer: Transfer, transfers: Iterable[Transfer], moved_bytes: int, *, now: float
    ) -> bool:
        """Return whether a copy may continue, after `moved_bytes` have come since the last question."""
        if transfer.is_for_prediction:
            self._budget.take(moved_bytes)
            if self._budget.wait_s(now=now) > 0:
                return False
        if transfer.urgency is Urgency.DEMAND:
            return True
        others = [other for other in transfers if other.link == transfer.link and other.urgency is Urgency.DEMAND]
        return not any(_uses_link(other) for other in others)

    def _step_of(
        self, transfer: Transfer, demanded_links: set[str], background: int, *, now: float
    ) -> TransferStep | None:
        if transfer.not_before_s > now:
            self._wake_at(transfer.not_before_s)
            return None
        step = transfer.next_step(now=now)
        if step is None or transfer.urgency is Urgency.DEMAND:
            return step
        if background >= self._max_background:
            return None
        if transfer.link in demanded_links and step.kind is not StepKind.COMMIT:
            return None
        if step.kind is StepKind.CHUNK and transfer.is_for_prediction:
            wait_s = self._budget.wait_s(now=now)
            if wait_s > 0:
                self._wake_at(now + wait_s)
                return None
        return step

    def _wake_at(self, when: float) -> None:
        self.wake_s = when if self.wake_s is None else min(self.wake_s, when)


def _rank(transfer: Transfer) -> tuple[Urgency, int, int]:
    urgency = transfer.urgency
    return urgency, len(transfer.running) if urgency is Urgency.DEMAND else 0, transfer.number


def _uses_link(transfer: Transfer) -> bool:
    """Return whether the transfer uses its link now or soon."""
    return bool(transfer.wanted or transfer.running or transfer.waiting)

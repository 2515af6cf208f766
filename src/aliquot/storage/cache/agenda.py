"""Which step comes next: what is waited for, then what was asked for, then what was predicted. Pure; time is given."""

from collections.abc import Iterable

from aliquot.storage.cache.base import Urgency
from aliquot.storage.cache.budget import Budget
from aliquot.storage.cache.transfer import Kind, Step, Transfer

SPARE = 4  # one worker in so many is not for the busiest link: one that hangs must not hold up the others


class Agenda:
    def __init__(self, workers: int, budget: Budget) -> None:
        self._workers = workers
        self._background = max(1, workers // 2)
        self._per_link = workers - workers // SPARE
        self.budget = budget
        self.wake_s: float | None = None  # when to look again even if nothing happens; set by `peek`

    def next_step(self, transfers: Iterable[Transfer], *, now: float) -> Step | None:
        """The most urgent; of equals the transfer that has the fewest workers, then the one that came first."""
        step = self.peek(transfers, now=now)
        if step is not None and step.kind is Kind.CHUNK and step.transfer.is_for_prediction:
            entry = step.transfer.entry
            self.budget.take(entry.span(step.chunk)[1] if entry is not None else 0)
        return step

    def peek(self, transfers: Iterable[Transfer], *, now: float) -> Step | None:
        """The step that comes next, which is not taken yet."""
        self.wake_s = None
        ranked = sorted((_rank(transfer), transfer) for transfer in transfers)
        running: dict[str, int] = {}
        background = 0
        busy_links: set[str] = set()
        for (urgency, _, _), transfer in ranked:
            count = len(transfer.running)
            if count:
                running[transfer.link] = running.get(transfer.link, 0) + count
            if urgency is not Urgency.DEMAND:
                background += count
            elif _has_to_do(transfer):
                busy_links.add(transfer.link)
        for _, transfer in ranked:
            if running.get(transfer.link, 0) >= self._per_link:
                continue
            step = self._step_of(transfer, busy_links, background, now=now)
            if step is not None:
                return step
        return None

    def may_go_on(self, transfer: Transfer, transfers: Iterable[Transfer], moved: int, *, now: float) -> bool:
        """Whether a copy that cannot be cut into chunks may go on; `moved` bytes have come since it was last asked."""
        if transfer.is_for_prediction:
            self.budget.take(moved)
            if self.budget.wait_s(now=now) > 0:
                return False
        if transfer.urgency is Urgency.DEMAND:
            return True
        others = [other for other in transfers if other.link == transfer.link and other.urgency is Urgency.DEMAND]
        return not any(_has_to_do(other) for other in others)

    def _step_of(self, transfer: Transfer, busy_links: set[str], background: int, *, now: float) -> Step | None:
        if transfer.not_before_s > now:
            self._wake_at(transfer.not_before_s)
            return None
        step = transfer.next_step(now=now)
        if step is None or transfer.urgency is Urgency.DEMAND:
            return step
        if background >= self._background or (transfer.link in busy_links and step.kind is not Kind.COMMIT):
            return None
        if step.kind is Kind.CHUNK and transfer.is_for_prediction:
            wait_s = self.budget.wait_s(now=now)
            if wait_s > 0:
                self._wake_at(now + wait_s)
                return None
        return step

    def _wake_at(self, when: float) -> None:
        self.wake_s = when if self.wake_s is None else min(self.wake_s, when)


def _rank(transfer: Transfer) -> tuple[Urgency, int, int]:
    urgency = transfer.urgency
    return urgency, len(transfer.running) if urgency is Urgency.DEMAND else 0, transfer.number


def _has_to_do(transfer: Transfer) -> bool:
    """Whether the link is used for it, or will be."""
    return bool(transfer.wanted or transfer.running or transfer.waiting)

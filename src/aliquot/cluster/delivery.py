"""Deliver messages exactly once and in order over connections that may break.

Each side numbers the messages that it sends, from 1, and keeps them until the other has acknowledged them. After a
reconnection each side says which message of the other it has received last, and gets those after it again. A message is
numbered by its position, so that nothing is added to it. The state belongs to one pair of head and agent: when one of
them is another process than before, both begin anew.
"""

from collections import deque
from collections.abc import Iterable


class DeliveryError(Exception):
    """The peer says that it has received what was never sent, or what is not kept any longer."""


class Delivery:
    """One side's state: what it has sent and not seen acknowledged, and the number that it has received."""

    def __init__(self, max_kept_bytes: int) -> None:
        self.received = 0  # messages of the other side, all of them handled
        self.kept_bytes = 0
        self._max_kept_bytes = max_kept_bytes
        self._kept: deque[tuple[bytes, float]] = deque()  # messages with the time at which they were sent first
        self._acknowledged = 0

    @property
    def sent(self) -> int:
        """The number of the last message that was sent."""
        return self._acknowledged + len(self._kept)

    @property
    def is_over(self) -> bool:
        """Return whether it keeps more than it may."""
        return self.kept_bytes > self._max_kept_bytes

    def oldest_s(self, now_s: float) -> float:
        """Return for how long the oldest message has waited for its acknowledgement."""
        return now_s - self._kept[0][1] if self._kept else 0.0

    def keep(self, message: bytes, now_s: float) -> None:
        """Number a message that is sent now, and keep it."""
        self._kept.append((message, now_s))
        self.kept_bytes += len(message)

    def count_received(self) -> None:
        """Count a message of the other side, which is handled now."""
        self.received += 1

    def acknowledge(self, number: int) -> None:
        """Forget the messages up to this number. Raises `DeliveryError`."""
        if not self._acknowledged <= number <= self.sent:
            raise DeliveryError(
                f"the peer acknowledges message {number}; {self._acknowledged} to {self.sent} can be acknowledged"
            )
        while self._acknowledged < number:
            message, _ = self._kept.popleft()
            self.kept_bytes -= len(message)
            self._acknowledged += 1

    def resend(self, received: int) -> Iterable[bytes]:
        """Return the messages after the last that the peer has received, in order. Raises `DeliveryError`."""
        self.acknowledge(received)
        return [message for message, _ in self._kept]

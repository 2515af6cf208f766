"""What is due when: a heap of moments in which what was put off or called off is passed over later."""

from heapq import heapify, heappop, heappush

Key = tuple[str, str]


class DueQueue:
    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def set(self, key: Key, due_ms: int | None) -> None:
        """Once, then; None: not at all."""
        if due_ms is None:
            self._due.pop(key, None)
            return
        self._due[key] = due_ms
        heappush(self._heap, (due_ms, key))
        if len(self._heap) > 2 * len(self._due) + 64:  # who changes their mind often must not fill the memory
            self._heap = [(due, of) for of, due in self._due.items()]
            heapify(self._heap)

    @property
    def next_due(self) -> int | None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> list[Key]:
        """All that is due by now, in order. It is off the agenda then."""
        taken = []
        while (due := self.next_due) is not None and due <= now_ms:
            key = heappop(self._heap)[1]
            del self._due[key]
            taken.append(key)
        return taken

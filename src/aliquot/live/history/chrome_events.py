"""The events of a trace in Chrome's format: processes and threads have names, and times are microseconds."""

from typing import Any, TypeAlias

TraceEvent: TypeAlias = dict[str, Any]


class TraceEvents:
    """Collects events. What happens before `from_us` is left out, and times are counted from there."""

    def __init__(self, from_us: float) -> None:
        self.now_us = 0.0
        self._from_us = from_us
        self._events: list[TraceEvent] = []
        self._processes: dict[str, int] = {}
        self._threads: set[tuple[int, int]] = set()

    def taken(self) -> list[TraceEvent]:
        """Return the events since the last time."""
        events, self._events = self._events, []
        return events

    def process(self, name: str) -> int:
        """Return the number of the process with this name."""
        number = self._processes.get(name)
        if number is None:
            number = self._processes[name] = len(self._processes) + 1
            self._events.append({"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}})
        return number

    def name_thread(self, process: int, thread: int, name: str) -> None:
        if (process, thread) not in self._threads:
            self._threads.add((process, thread))
            named = {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}}
            self._events.append(named)

    def slice(
        self, process: int, thread: int, name: str, since_us: float, args: dict[str, Any], least_us: float = 0
    ) -> None:
        """Add a slice that ends now."""
        took_us = max(self.now_us - since_us, least_us)
        self.add("X", process, thread, name, ts=since_us, dur=round(took_us, 3), args=args)

    def add(self, phase: str, process: int, thread: int, name: str, **more: Any) -> None:  # noqa: ANN401 - JSON
        """Add an event of this phase, which happens now unless `ts` says when."""
        if self.now_us < self._from_us:
            return
        at_us = more.pop("ts", self.now_us) - self._from_us
        self._events.append({"ph": phase, "pid": process, "tid": thread, "ts": round(at_us, 3), "name": name} | more)

"""Collect what a run prints, so that the head gets its lines while it runs, and pass on the parts of its result."""

from collections.abc import Callable

from aliquot.live.node.base import OutputListener


class AgentRunOutput(OutputListener):
    """The lines of one run that were not sent yet."""

    def __init__(self, on_line: Callable[[], None]) -> None:
        """`on_line` is called with each line."""
        self.unsent: list[str] = []
        self._on_line = on_line

    def printed(self, line: str) -> None:
        self.unsent.append(line)
        self._on_line()

    def take(self) -> list[str]:
        """Return the lines that were not sent yet."""
        taken, self.unsent = self.unsent, []
        return taken


class AgentPartOutput(AgentRunOutput):
    """The same for a run whose caller takes its result in parts."""

    def __init__(self, on_line: Callable[[], None], send: Callable[[bytes], None]) -> None:
        super().__init__(on_line)
        self._send = send
        self._taken: Callable[[bool], None] | None = None

    def part(self, data: bytes, taken: Callable[[bool], None]) -> None:
        """Send a part. Its caller takes one at a time."""
        self._taken = taken
        self._send(data)

    def part_taken(self, *, goes_on: bool) -> None:
        """Let the function go on, or tell it to stop."""
        taken, self._taken = self._taken, None
        if taken is not None:
            taken(goes_on)

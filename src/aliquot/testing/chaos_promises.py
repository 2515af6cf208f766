"""The promises that a scheduler makes: each at most once, and broken at most once."""

from collections.abc import Container

from aliquot.core.commands import BreakPromise, Promise


class ChaosPromises:
    """Records promises, and refuses what must not happen."""

    def __init__(self) -> None:
        self.open: dict[str, None] = {}  # neither kept nor broken
        self.broken: dict[str, str] = {}  # blame by invocation
        self.made = 0

    def perform(self, command: Promise | BreakPromise, calls: Container[str]) -> None:
        """Record a promise, or that it is broken. `calls` have not ended."""
        name = command.invocation
        if name not in calls:
            raise AssertionError(f"{command} after its end")
        if isinstance(command, Promise):
            if name in self.open or name in self.broken:
                raise AssertionError(f"{name} is promised twice")
            self.open[name] = None
            self.made += 1
        else:
            del self.open[name]
            self.broken[name] = command.blame
